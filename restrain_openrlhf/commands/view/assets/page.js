// The page as a whole: reads the groups, and connects filters, list, keys and the open group.
"use strict";

const form = document.getElementById("filters");
const state = { groups: [], prompts: new Map(), current: null, asWritten: false, open, onlyPrompt };
const list = new GroupList(document.getElementById("list"), document.getElementById("rows"), state);

async function read() {
  const reading = document.getElementById("reading");
  try {
    const found = await source.list();
    state.groups = found.groups;
    state.prompts = new Map(Object.entries(found.prompts));
    document.getElementById("damaged").append(...found.damaged.map((why) => element("p", {}, `Left out: ${why}`)));
    reading.textContent = counted();
    refresh();
    openAddressed();
    if (address().has("open") && state.current === null) say(`The address names the group ${address().get("open")} (step, group), which was not kept.`);
  } catch (error) {
    reading.textContent = `The groups could not be read: ${error.message}`;
  }
}

function say(why) {
  document.getElementById("group").replaceChildren(element("p", { class: "note" }, why));
}

function counted() {
  const steps = new Set(state.groups.map((group) => group.step)).size;
  return `${plural(state.groups.length, "group")} of ${plural(state.prompts.size, "prompt")} at ${plural(steps, "step")}`;
}

function refresh() {
  const values = chosen(form);
  const inResponses = values.responses && values.text;
  const isSearched = inResponses && values.text === searched.text;
  const places = isSearched ? searched.places : new Set();
  const found = matching(state.groups, state.prompts, values, places);
  const soFar = inResponses && !isSearched ? ", still searching the responses" : "";
  document.getElementById("shown").textContent = `${found.length.toLocaleString("en")} of ${plural(state.groups.length, "group")}${soFar}`;
  document.getElementById("one-prompt").hidden = !values.prompt;
  for (const output of form.querySelectorAll("output")) {
    output.textContent = state.groups.filter(TESTS[output.dataset.of]).length.toLocaleString("en");
  }
  drawSizes(document.getElementById("sizes"), state.groups, values, (size) => {
    form.least_votes.value = form.most_votes.value = size;
    filtered();
  });
  list.show(found, state.current);
}

function filtered() {
  remember();
  list.box.scrollTop = 0;
  refresh();
  searchSoon();
}

// The groups whose responses have a text, once the reader has stopped typing it.
const searched = { text: "", places: new Set(), timer: 0 };

function searchSoon() {
  const { text, responses } = chosen(form);
  clearTimeout(searched.timer);
  if (!responses || !text || text === searched.text) return;
  searched.timer = setTimeout(async () => {
    try {
      const places = new Set(await source.placesWith(text));
      // Another text may have been typed while this one was searched.
      if (chosen(form).text === text) Object.assign(searched, { text, places });
      refresh();
    } catch (error) {
      document.getElementById("shown").textContent = `The responses could not be searched: ${error.message}`;
    }
  }, 300);
}

async function open(group) {
  const another = state.current !== null && state.current !== group;
  state.current = group;
  remember(another);
  const box = document.getElementById("group");
  box.scrollTop = 0;
  try {
    const details = await source.details(group);
    if (state.current === group) drawGroup(box, state, group, details);
  } catch (error) {
    if (state.current === group) say(`The group could not be read: ${error.message}`);
  }
  // Another group may have been opened while this one's responses came.
  list.mark(state.current);
  // Below the list on a phone.
  if (state.current === group && box.offsetTop > list.box.offsetTop) box.scrollIntoView();
}

function onlyPrompt(id) {
  form.reset();
  form.prompt.value = id;
  filtered();
}

// The address holds the filters and the open group. Back leads to the group that was open before.
function remember(another = false) {
  const values = new URLSearchParams(chosen(form));
  if (state.current) values.set("open", placeOf(state.current));
  if (`#${values}` === location.hash) return;
  history[another ? "pushState" : "replaceState"](null, "", `#${values}`);
}

function address() {
  return new URLSearchParams(location.hash.slice(1));
}

function openAddressed() {
  const wanted = address().get("open");
  const group = state.groups.find((each) => placeOf(each) === wanted);
  if (!group || group === state.current) return;
  open(group);
  list.mark(group);
  list.reveal();
}

function restoreFilters() {
  const values = address();
  for (const field of form.elements) {
    if (field.type === "checkbox") field.checked = values.has(field.name);
    else if (field.name) field.value = values.get(field.name) ?? "";
  }
}

const KEYS = {
  j: () => list.move(1),
  k: () => list.move(-1),
  "/": () => form.text.focus(),
  r: () => {
    state.asWritten = !state.asWritten;
    if (state.current) open(state.current);
  },
};

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  if (isTyping || event.ctrlKey || event.altKey || event.metaKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});
form.addEventListener("input", filtered);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => {
  form.prompt.value = "";
  setTimeout(filtered);
});
document.getElementById("one-prompt").addEventListener("click", () => {
  form.prompt.value = "";
  filtered();
});

addEventListener("popstate", () => {
  restoreFilters();
  refresh();
  searchSoon();
  openAddressed();
});

restoreFilters();
searchSoon();
read();
