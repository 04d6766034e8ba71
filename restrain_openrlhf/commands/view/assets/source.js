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

// zlib's format in base64. A search unpacks every group: a Blob's stream and Uint8Array.from take three times as long.
function unpacked(base64) {
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  writer.write(bytes);
  writer.close();
  return new Response(readable).text();
}

const source = document.getElementById("summaries") ? embedded : served;
