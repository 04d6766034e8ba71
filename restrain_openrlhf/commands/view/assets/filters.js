// The filters: what of all groups the form asks for, kept in the page's address so that a reload keeps them.
"use strict";

const TESTS = {
  penalized: (group) => group.penalized,
  flipped: (group) => group.flipped_from !== null,
  missing: (group) => group.missing > 0,
};

const majorityRight = (group) => group.votes[0]?.right ?? null;
const anyRight = (group) => group.votes.some((votes) => votes.right);
// Where no rollout has an answer there is no majority, which is wrong.
const GOLD = {
  right: (group) => majorityRight(group) === true,
  wrong: (group) => group.graded && majorityRight(group) !== true,
  lost: (group) => group.graded && majorityRight(group) !== true && anyRight(group),
  none: (group) => !group.graded,
};

const ORDERS = {
  latest: (one, other) => other.step - one.step || one.group - other.group,
  smallest: (one, other) => one.majority_count - other.majority_count,
  largest: (one, other) => other.majority_count - one.majority_count,
};

// The values of the form that are set, by name.
function chosen(form) {
  return Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
}

// `places`: of the groups whose responses have the text, where these were searched.
function matching(groups, prompts, values, places) {
  const tests = Object.keys(TESTS).filter((name) => values[name]).map((name) => TESTS[name]);
  const between = (read, low, high) => (group) => !(read(group) < Number(low)) && !(read(group) > Number(high));
  tests.push(between((group) => group.step, values.first_step ?? NaN, values.last_step ?? NaN));
  tests.push(between((group) => group.majority_count, values.least_votes ?? NaN, values.most_votes ?? NaN));
  if (values.gold) tests.push(GOLD[values.gold]);
  if (values.prompt) tests.push((group) => group.prompt_id === values.prompt);
  if (values.text) tests.push(contains(prompts, values.text, places));
  const found = groups.filter((group) => tests.every((test) => test(group)));
  return values.order ? found.sort(ORDERS[values.order]) : found;
}

// In the prompt, in an answer, or in a response. Each prompt is searched once, however many groups it has.
function contains(prompts, text, places) {
  const wanted = text.toLowerCase();
  const found = new Set([...prompts].filter(([, prompt]) => prompt.toLowerCase().includes(wanted)).map(([id]) => id));
  return (group) => found.has(group.prompt_id) || places.has(placeOf(group)) || group.votes.some(({ answer }) => answer?.toLowerCase().includes(wanted));
}

// One bar for each majority size; a click on it chooses the groups of that size, a second click all.
function drawSizes(box, groups, values, choose) {
  const counts = [];
  for (const group of groups) counts[group.majority_count] = (counts[group.majority_count] ?? 0) + 1;
  const most = Math.max(1, ...counts.filter(Boolean));
  const bars = Array.from(counts, (count = 0, size) => {
    const alone = values.least_votes === String(size) && values.most_votes === String(size);
    const name = `majority of ${size}: ${plural(count, "group")}`;
    const attributes = { type: "button", title: name, "aria-label": name, "aria-pressed": String(alone) };
    return element(
      "button",
      { ...attributes, click: () => choose(alone ? "" : size) },
      sized(element("span", { class: "bar" }), "height", count / most),
      element("span", { class: "size" }, String(size)),
    );
  });
  box.replaceChildren(...bars);
}
