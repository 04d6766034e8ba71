// Texts of rollouts, with formulas by KaTeX where it can read them, and long texts in pieces.
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

// A browser takes minutes to lay out a megabyte without a space, so a text is shown in pieces of this length.
const PIECE = 20_000;
// As Pandoc reads dollars: no space just inside of them, and no digit after them. With space, what is between them has to
// look like a formula and not begin with a digit. All other dollars are money.
const INLINE = /(?<!\\)\$\$[^]*?\$\$|(?<![\\$])\$(?:(?=[^\s$])[^$]*?[^\s$\\]|(?!\d)[^$]*[\\^_][^$]*)\$(?![\d$])/g;

function written(...parts) {
  return element("div", { class: "written", dir: "auto" }, parts);
}

// Each dollar of money alone in an element: KaTeX pairs the dollars within one.
function apartFromMoney(text) {
  const money = (between) => between.split(/(\$)/).map((part) => (part === "$" ? element("span", {}, part) : part));
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    parts.push(...money(text.slice(end, found.index)), found[0]);
    end = found.index + found[0].length;
  }
  return [...parts, ...money(text.slice(end))];
}

function withFormulas(text) {
  const box = written(...apartFromMoney(text));
  try {
    renderMathInElement(box, { ...LIMITS, delimiters: DELIMITERS, errorCallback: () => {} });
  } catch {
    // Such as a formula nested deeper than the browser's stack.
    box.replaceChildren(text);
  }
  return box;
}

function shownText(text, asWritten, start = 0) {
  const piece = text.slice(start, start + PIECE);
  const shown = asWritten ? written(piece) : withFormulas(piece);
  const left = text.length - start - PIECE;
  if (left <= 0) return shown;
  const more = element("button", { type: "button", class: "more" }, `Show more: ${plural(left, "character")} left`);
  more.addEventListener("click", () => more.replaceWith(shownText(text, asWritten, start + PIECE)));
  return element("div", {}, shown, more);
}

// Fills a box once it is in sight.
const unseen = new Map();
const sight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    unseen.get(target)?.();
    unseen.delete(target);
    sight.unobserve(target);
  }
});

function whenSeen(box, fill) {
  unseen.set(box, fill);
  sight.observe(box);
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
