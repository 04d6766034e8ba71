// One open group: its prompt, its vote over the steps, and its answer classes side by side.
"use strict";

function drawGroup(box, state, group, details) {
  box.replaceChildren(
    element("h2", {}, `Step ${group.step}, group ${group.group}`, element("span", { class: "marks" }, marks(group))),
    facts(group, details),
    element("h3", {}, "Prompt"),
    element("div", { class: "panel short" }, shownText(state.prompts.get(group.prompt_id), state.asWritten)),
    ...overSteps(state, group),
    element("h3", {}, "Answer classes"),
    details ? classes(details, state.asWritten) : leftOut(),
  );
  bringIntoSight(box.querySelector(".columns [aria-current]"));
}

// The group's column in a chart of many steps, without moving the page.
function bringIntoSight(column) {
  const columns = column.parentElement;
  columns.scrollLeft = column.offsetLeft - columns.clientWidth / 2;
}

function fact(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value));
}

function indexed(letter, index) {
  return element("span", { class: "symbol" }, letter, element("sub", {}, index));
}

function facts(group, details) {
  return element(
    "dl",
    { class: "facts" },
    fact("majority", `${group.majority_count} of ${group.voters}`),
    fact(indexed("u", "x"), shownNumber(group.prompt_weight)),
    fact("penalised", `${Math.round(100 * group.penalized)} % of the rollouts`),
    fact("missing answers", String(group.missing)),
    group.flipped_from !== null ? fact("majority flipped from", shownAnswer(group.flipped_from)) : [],
    details?.gold != null ? fact("gold", shownAnswer(details.gold)) : [],
  );
}

function overSteps(state, group) {
  const same = state.groups.filter((other) => other.prompt_id === group.prompt_id);
  return [
    element("h3", {}, "This prompt's vote over the steps"),
    voteChart(same, group, state.open),
    element("p", {}, element("button", { type: "button", click: () => state.onlyPrompt(group.prompt_id) }, `List this prompt's ${plural(same.length, "group")}`)),
  ];
}

function leftOut() {
  return element("p", { class: "note" }, "This group's responses were left out of the file to keep it small. Its vote is above.");
}

function classes(details, asWritten) {
  return element("div", { class: "classes" }, details.classes.map((each, place) => classCard(each, place, asWritten)));
}

function classCard(each, place, asWritten) {
  const verdict = each.right === null ? null : mark(...(each.right ? ["right", "✓ right"] : ["wrong", "✗ wrong"]));
  const isMajority = place === 0 && each.votes !== null;
  const votes = each.votes === null ? `${plural(each.rollouts.length, "rollout")}, no vote` : plural(each.votes, "vote");
  return element(
    "section",
    { class: "class", "aria-label": `Answer ${each.answer?.slice(0, 120) ?? "missing"}` },
    element("h4", {}, shownAnswer(each.answer)),
    element("p", { class: "marks" }, isMajority ? mark("majority", "majority") : null, mark("", votes), verdict),
    element(
      "dl",
      { class: "facts" },
      fact(indexed("w", "j"), shownNumber(each.label_weight)),
      fact("A⁺", spread(each.rollouts, "advantage_pos")),
      fact("A⁻", spread(each.rollouts, "advantage_neg")),
      fact("log-prob gap", spread(each.rollouts, "log_prob_gap")),
    ),
    [...Map.groupBy(each.rollouts, (rollout) => rollout.response).values()].map((equal, place) =>
      response(equal, each.read[each.rollouts.indexOf(equal[0])], place === 0, asWritten),
    ),
  );
}

// One value where all rollouts have the same, else the least and the most.
function spread(rollouts, name) {
  const values = rollouts.map((rollout) => rollout[name]).filter((value) => value !== null);
  const shown = [Math.min(...values), Math.max(...values)].map(shownNumber);
  if (!values.length) return "–";
  if (values.some((value) => typeof value !== "number")) return values.map(shownNumber).join(", ");
  return shown[0] === shown[1] ? shown[0] : `${shown[0]} … ${shown[1]}`;
}

// One response, of one rollout or of several that wrote the same, with the words that were read as its answer. It is drawn
// once it is open and in sight.
function response(equal, [before, words, behind], isOpen, asWritten) {
  const [first] = equal;
  const box = element("div", { class: "panel" });
  const fill = () => box.childElementCount || box.append(shownText(first.response, asWritten));
  const copy = () => navigator.clipboard.writeText(first.response);
  const name = `${equal.length > 1 ? "rollouts" : "rollout"} ${equal.map((rollout) => rollout.rollout).join(", ")}`;
  return element(
    "details",
    { open: isOpen, toggle: () => whenSeen(box, fill) },
    element("summary", {}, name, element("span", { class: "numbers" }, numbers(first)), words && element("p", { dir: "auto" }, before, element("mark", {}, words), behind)),
    box,
    element("button", { type: "button", class: "copy", click: copy }, "Copy as it was written"),
  );
}

function numbers(rollout) {
  const found = [
    rollout.trained ? `A⁺ ${shownNumber(rollout.advantage_pos)} A⁻ ${shownNumber(rollout.advantage_neg)}` : "votes only",
    rollout.log_prob_gap === null ? "" : `gap ${shownNumber(rollout.log_prob_gap)}`,
    rollout.entropy === null ? "" : `entropy ${shownNumber(rollout.entropy)}`,
    rollout.finished ? "" : "cut off",
  ];
  return found.filter(Boolean).join(" · ");
}
