// What this file holds: the list of groups, and each group's responses, which are unpacked when they are needed.
"use strict";

const source = {
  async list() {
    return JSON.parse(await unpacked(document.getElementById("summaries").textContent.trim()));
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

function placeOf(group) {
  return `${group.step}/${group.group}`;
}

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
