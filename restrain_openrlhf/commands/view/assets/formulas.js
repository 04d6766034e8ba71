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
// KaTeX takes milliseconds for each formula, so a piece that is drawn has at most so many delimiters, two for a formula.
const DRAWN_DELIMITERS = 600;
const DELIMITER = /\$|\\[([]|\\begin\b/g;
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

function piece(text, asWritten, start) {
  const longest = text.slice(start, start + PIECE);
  const next = asWritten ? undefined : [...longest.matchAll(DELIMITER)][DRAWN_DELIMITERS];
  return longest.slice(0, next?.index);
}

function shownText(text, asWritten, start = 0) {
  const part = piece(text, asWritten, start);
  const shown = asWritten ? written(part) : withFormulas(part);
  const end = start + part.length;
  if (end >= text.length) return shown;
  const more = element("button", { type: "button", class: "more" }, `Show more: ${plural(text.length - end, "character")} left`);
  more.addEventListener("click", () => more.replaceWith(shownText(text, asWritten, end)));
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
