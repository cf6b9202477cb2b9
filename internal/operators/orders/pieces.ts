/** Reads a file of any size piece by piece, in bounded memory. */

/**
 * What `pattern` (global) matches, over the borders of chunks; it must match a line feed alone. Of a
 * piece longer than `most` characters, at least `most` + 1 are given.
 */
export async function* piecesOf(
  chunks: AsyncIterable<string>,
  pattern: RegExp,
  most: number,
): AsyncGenerator<string> {
  let rest = '';
  for await (const chunk of chunks) {
    const text = rest + chunk;
    rest = '';
    for (const { 0: piece, index } of text.matchAll(pattern)) {
      const mayGoOn = piece !== '\n' && index + piece.length === text.length;
      if (mayGoOn) rest = piece.slice(0, most + 1);
      else yield piece;
    }
  }
  if (rest !== '') yield rest;
}
