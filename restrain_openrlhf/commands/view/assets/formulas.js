// Texts of rollouts, with formulas by KaTeX where it can read them, and long texts in pieces.
"use strict";

// No links, classes or styles from formulas (trust), and bounds on what one can draw or expand.
const LIMITS = { trust: false, strict: "ignore", maxSize: 20, maxExpand: 500, throwOnError: true };
// A text that defines macros is not drawn: one long macro, used often, is millions of symbols.
const DEFINES = /\\(?:[gex]?def|let|futurelet|(?:re)?newcommand|providecommand)(?![a-zA-Z])/;
// Chromium's tab crashes on elements that are nested some hundred levels deep; a fraction is seven.
const DEEPEST = 300;

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
const PIECE = 10_000;
// An answer that is longer is a text.
const LONG_ANSWER = 500;
// Formulas take a browser's time for each of their dollars, commands and scripts, so a piece that is drawn has at most so
// many of these.
const DRAWN_MARKS = 600;
const MARK = /\$|\\(?:[([]|[a-zA-Z]+)|[_^]/g;
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
  return drawn(written(...apartFromMoney(text)), text, (box) =>
    renderMathInElement(box, { ...LIMITS, delimiters: DELIMITERS, errorCallback: () => {} }),
  );
}

// The box as `draw` fills it; with the text alone where KaTeX cannot read it, or its formulas are too much for a browser.
function drawn(box, text, draw) {
  try {
    if (!DEFINES.test(text)) draw(box);
  } catch {
    box.replaceChildren(text);
  }
  if (isTooDeep(box)) box.replaceChildren(text);
  return box;
}

function isTooDeep(box) {
  let level = [box];
  for (let depth = 0; depth < DEEPEST; depth++) level = level.flatMap((each) => [...each.children]);
  return level.length > 0;
}

function piece(text, asWritten, start) {
  const longest = text.slice(start, start + PIECE);
  const next = asWritten ? undefined : [...longest.matchAll(MARK)][DRAWN_MARKS];
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

// Fills a box once it is in sight, one box in a frame: the page answers the reader in between.
const unseen = new WeakMap();
const sight = new IntersectionObserver(async (entries) => {
  for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
    sight.unobserve(target);
    unseen.get(target)();
    await new Promise(requestAnimationFrame);
  }
});

function whenSeen(box, fill) {
  unseen.set(box, fill);
  sight.observe(box);
}

// Of other kinds of answers (`answers:` in a run's configuration), such as JSON or programs, none is a formula.
const areMathematics = document.body.matches(".mathematics");

function shownAnswer(answer) {
  if (answer === null) return element("span", { class: "none" }, "no answer");
  if (answer.length > LONG_ANSWER) return shownText(answer, true);
  const box = element("span", { class: "answer", title: answer, dir: "auto" }, answer);
  return areMathematics && /[\\^_{]/.test(answer) ? drawn(box, answer, () => katex.render(`\\displaystyle ${answer}`, box, LIMITS)) : box;
}
