// Where groups come from: blocks of this file.
"use strict";

const source = {
  async groups() {
    return JSON.parse(await unpacked(document.getElementById("summaries").textContent.trim()));
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
