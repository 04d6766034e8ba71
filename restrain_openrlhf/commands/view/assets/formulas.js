// Formulas in rollouts, by KaTeX. What it cannot read stays as it was written.
"use strict";

// No links, classes or styles from formulas (trust), and bounds on what one can draw or expand.
const LIMITS = { trust: false, strict: "ignore", maxSize: 20, maxExpand: 500, throwOnError: true };

function paired(left, right, display) {
  return { left, right, display };
}

function environment(name) {
  return paired(`\\begin{${name}}`, `\\end{${name}}`, true);
}

const DELIMITERS = [
  paired("$$", "$$", true),
  paired("\\[", "\\]", true),
  paired("\\(", "\\)", false),
  paired("$", "$", false),
  ...["equation", "equation*", "align", "align*", "gather", "gather*", "alignat"].map(environment),
];

function written(text) {
  return element("div", { class: "written", dir: "auto" }, text);
}

function withFormulas(text) {
  const box = written(text);
  try {
    renderMathInElement(box, { ...LIMITS, delimiters: DELIMITERS, errorCallback: () => {} });
  } catch {
    // Such as a formula nested deeper than the browser's stack.
    box.replaceChildren(text);
  }
  return box;
}

function shownText(text, asWritten) {
  return asWritten ? written(text) : withFormulas(text);
}

function shownAnswer(answer) {
  if (answer === null) return element("span", { class: "none" }, "no answer");
  const box = element("span", { class: "answer", title: answer, dir: "auto" }, answer);
  if (/[\\^_{]/.test(answer) && answer.length < 500) {
    try {
      katex.render(`\\displaystyle ${answer}`, box, LIMITS);
    } catch {
      box.replaceChildren(answer);
    }
  }
  return box;
}
