// Where groups come from: the server, page by page, or this file itself.
"use strict";

const served = {
  async *pages() {
    for (let start = 0; start !== null; ) {
      const page = await answerOf(`api/groups?start=${start}`);
      yield page;
      start = page.next;
    }
  },
  details: (group) => answerOf(`api/groups/${placeOf(group)}`),
  placesWith: (text) => answerOf(`api/search?text=${encodeURIComponent(text)}`),
};

function placeOf(group) {
  return `${group.run}/${group.step}/${group.group}`;
}

async function answerOf(path) {
  const address = new URL(path, location);
  const token = new URLSearchParams(location.search).get("token");
  if (token) address.searchParams.set("token", token);
  const reply = await fetch(address);
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

const embedded = {
  async *pages() {
    yield JSON.parse(await unpacked(document.getElementById("summaries").textContent.trim()));
  },
  async details(group) {
    const packed = this.all()[placeOf(group)];
    return packed === undefined ? null : JSON.parse(await unpacked(packed));
  },
  async placesWith(text) {
    const found = [];
    for (const [place, packed] of Object.entries(this.all())) {
      const responses = JSON.parse(await unpacked(packed)).classes.flatMap((each) => each.rollouts);
      if (responses.some(({ response }) => response.toLowerCase().includes(text.toLowerCase()))) found.push(place);
    }
    return found;
  },
  all() {
    return (this.packed ??= JSON.parse(document.getElementById("details").textContent));
  },
};

// zlib's format in base64.
function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

const source = document.getElementById("summaries") ? embedded : served;
