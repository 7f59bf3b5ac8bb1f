/* Decompression of columns. Pure. */

/** Decompress bytes. encoding: "deflate" or another one of DecompressionStream. Rejects invalid data. */
export function inflate(bytes, encoding = "deflate") {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(encoding));
  return new Response(stream).arrayBuffer();
}

/** Decompress a column that came in JSON, in base64. */
export function inflateText(base64) {
  return inflate(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
}
