// How one prompt's vote moves over the steps: a column for each group, the majority at the bottom.
"use strict";

const COLOURS = 7;

function voteChart(groups, current, open) {
  const legend = ranked(groups);
  const colours = new Map(legend.slice(0, COLOURS).map((entry, place) => [entry.number, `colour-${place}`]));
  return element(
    "figure",
    { class: "chart" },
    element("div", { class: "columns" }, groups.map((group) => column(group, colours, group === current, open))),
    element("ul", { class: "legend" }, legendOf(legend, groups)),
  );
}

// The prompt's answers, those with most votes over all steps first.
function ranked(groups) {
  const found = new Map();
  for (const votes of groups.flatMap((group) => group.votes)) {
    const entry = found.get(votes.number) ?? { ...votes, votes: 0 };
    entry.votes += votes.votes;
    found.set(votes.number, entry);
  }
  return [...found.values()].sort((one, other) => other.votes - one.votes);
}

function column(group, colours, isCurrent, open) {
  const said = group.votes.map((votes) => `${votes.answer ?? "no answer"} ${votes.votes}`).join(", ");
  const name = `step ${group.step}: ${said || "no answer"}${group.penalized ? "; penalised" : ""}`;
  const part = (votes) => sized(element("span", { class: colours.get(votes.number) ?? "other" }), "height", votes.votes / group.voters);
  return element(
    "button",
    { type: "button", title: name, "aria-label": name, "aria-current": isCurrent ? "true" : null, click: () => open(group) },
    element("span", { class: "stack" }, group.votes.map(part)),
    element("span", { class: "step" }, `${group.step}${group.penalized ? "*" : ""}`),
  );
}

function legendOf(legend, groups) {
  const entry = (colour, ...children) => element("li", {}, element("span", { class: `swatch ${colour}` }), ...children);
  const shown = legend.slice(0, COLOURS).map((votes, place) =>
    entry(`colour-${place}`, shownAnswer(votes.answer), votes.right ? " ✓ right" : "", ` (${votes.votes})`),
  );
  const others = legend.length - shown.length;
  if (others) shown.push(entry("other", plural(others, "other answer")));
  if (groups.some((group) => group.penalized)) shown.push(element("li", {}, "* penalised"));
  return shown;
}
