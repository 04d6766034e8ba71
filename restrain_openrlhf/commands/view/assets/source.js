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
  details: (group) => answerOf(`api/groups/${group.step}/${group.group}`),
};

async function answerOf(path) {
  const reply = await fetch(path);
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

const embedded = {
  async *pages() {
    yield JSON.parse(await unpacked(document.getElementById("summaries").textContent.trim()));
  },
  async details(group) {
    this.packed ??= JSON.parse(document.getElementById("details").textContent);
    const packed = this.packed[`${group.step}/${group.group}`];
    return packed === undefined ? null : JSON.parse(await unpacked(packed));
  },
};

// zlib's format in base64.
function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

const source = document.getElementById("summaries") ? embedded : served;
