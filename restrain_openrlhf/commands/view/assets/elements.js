// Elements of the page. Text becomes text nodes and attributes alone, so nothing in a rollout is ever read as HTML.
"use strict";

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

// Sizes are set on the element: the page's policy allows no style in markup.
function sized(made, property, share) {
  made.style.setProperty(property, `${100 * share}%`);
  return made;
}

// Numbers that JSON has no word for (NaN, infinities) arrive as text.
function shownNumber(value) {
  if (value === null) return "–";
  if (typeof value !== "number") return value;
  const shown = Number.isInteger(value) ? String(value) : Math.abs(value) < 0.01 ? value.toPrecision(2) : value.toFixed(3);
  return shown.replace("-", "−");
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}
