// The list of groups. Only the rows in sight are in the page, so ten thousand groups scroll as ten do.
"use strict";

const ROW = 58;
const BEYOND = 6;

class GroupList {
  constructor(box, rows, state) {
    Object.assign(this, { box, rows, state, groups: [], at: -1 });
    box.addEventListener("scroll", () => this.draw());
    box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  show(groups, current) {
    this.groups = groups;
    this.rows.style.height = `${groups.length * ROW}px`;
    this.mark(current);
  }

  mark(current) {
    this.at = this.groups.indexOf(current);
    this.draw();
  }

  // Scrolls no further than it must.
  reveal() {
    if (this.at < 0) return;
    const top = this.at * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + ROW > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW - this.box.clientHeight;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - BEYOND);
    const last = Math.min(this.groups.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + BEYOND);
    this.rows.replaceChildren(...this.groups.slice(first, last).map((group, place) => this.row(group, first + place)));
    const inSight = this.at >= first && this.at < last;
    if (inSight) this.box.setAttribute("aria-activedescendant", `row-${this.at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(group, place) {
    const made = element(
      "div",
      {
        id: `row-${place}`,
        class: "row",
        role: "option",
        "aria-selected": String(place === this.at),
        "aria-posinset": place + 1,
        "aria-setsize": this.groups.length,
        click: () => this.choose(place),
      },
      element("div", { class: "line quiet" }, where(group), topAnswer(group), votes(group), share(group)),
      element("div", { class: "line" }, prompt(this.state.prompts.get(group.prompt_id)), element("span", { class: "marks" }, marks(group))),
    );
    made.style.top = `${place * ROW}px`;
    return made;
  }

  choose(place) {
    if (place < 0 || place >= this.groups.length) return;
    this.at = place;
    this.reveal();
    this.state.open(this.groups[place]);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.move(moves[event.key]);
  }

  move(by) {
    this.choose(Math.min(this.groups.length - 1, Math.max(0, this.at + by)));
  }
}

function where(group) {
  return element("span", { class: "where" }, `step ${group.step} · group ${group.group}`);
}

function votes(group) {
  return element("span", { class: "votes" }, `${group.majority_count}/${group.voters}`);
}

function prompt(text) {
  return element("span", { class: "prompt", dir: "auto" }, text.slice(0, 140));
}

function topAnswer(group) {
  const answer = group.votes[0]?.answer ?? "";
  return element("span", { class: "top", title: answer, dir: "auto" }, answer);
}

function share(group) {
  return element("span", { class: "share" }, sized(element("span", {}), "width", group.majority_count / group.voters));
}

function mark(kind, text, title) {
  return element("span", { class: `mark ${kind}`, title }, text);
}

function marks(group) {
  const right = majorityRight(group);
  return [
    group.penalized ? mark("penalized", "penalised", "the method penalised rollouts of this group") : null,
    group.flipped_from !== null ? mark("flipped", "flipped", "the majority answer is not the one before") : null,
    group.missing ? mark("missing", `${group.missing} missing`, "rollouts without an answer") : null,
    right === true ? mark("right", "✓ right", "the majority answer is right") : null,
    group.graded && right !== true ? mark("wrong", "✗ wrong", "the majority answer is wrong") : null,
  ];
}
