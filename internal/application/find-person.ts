/** Searches a body for a person in linear time (docs/privacy.md). */

/** Both are normalised. */
export interface Person {
  readonly email?: string;
  readonly ein?: string;
}

export function mentions({ email, ein }: Person, body: Uint8Array): boolean {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const number = ein === undefined ? undefined : numberPattern(ein);
  for (const reading of readings(bytes)) {
    const text = reading.toLowerCase();
    if (email !== undefined && holdsAddress(text, email)) return true;
    if (number !== undefined && holdsNumber(text, number)) return true;
  }
  return false;
}

function* readings(bytes: Buffer): Generator<string> {
  for (const text of decoded(bytes)) {
    yield text;
    const plain = text.includes('\\') ? unescaped(text) : text;
    if (plain !== text) yield plain;
    if (!plain.includes('%')) continue;
    yield percentDecoded(plain);
    // A form writes blanks as "+" and never a plain "@".
    if (plain.includes('%40')) yield percentDecoded(plain.replaceAll(/[@+]/g, ' '));
  }
}

function* decoded(bytes: Buffer): Generator<string> {
  yield bytes.toString('utf8');
  // UTF-8 text has no zero bytes.
  if (!bytes.includes(0)) return;
  const pairs = bytes.subarray(0, bytes.length - (bytes.length % 2));
  yield pairs.toString('utf16le');
  yield Buffer.from(pairs).swap16().toString('utf16le');
}

const whiteSpace: Readonly<Record<string, string>> = {
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};

function unescaped(text: string): string {
  return text.replaceAll(/\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))/g, (_, code?: string, one = '') =>
    code === undefined ? (whiteSpace[one] ?? one) : String.fromCharCode(Number.parseInt(code, 16)),
  );
}

function percentDecoded(text: string): string {
  return text.replaceAll(/(?:%[0-9a-fA-F]{2})+/g, (run) =>
    Buffer.from(run.replaceAll('%', ''), 'hex').toString('utf8'),
  );
}

/** Each comparison begins at an "@", of which an address has one, so the time is linear. */
function holdsAddress(text: string, address: string): boolean {
  const local = address.indexOf('@');
  if (local < 1) return false;
  for (let at = text.indexOf('@'); at !== -1; at = text.indexOf('@', at + 1)) {
    const start = at - local;
    if (
      start >= 0 &&
      text.startsWith(address, start) &&
      standsAlone(text, start, start + address.length)
    ) {
      return true;
    }
  }
  return false;
}

/** `mary.jane@x.test` and `jane@x.test.au` are other addresses. */
function standsAlone(text: string, start: number, end: number): boolean {
  let before = start - 1;
  while (before >= 0 && '.+_-'.includes(text[before]!)) before -= 1;
  if (before >= 0 && isWord(text[before]!)) return false;
  let after = end;
  if (text[after] === '.') after += 1;
  else while (text[after] === '-') after += 1;
  return after >= text.length || !isWord(text[after]!);
}

function isWord(character: string): boolean {
  return (character >= 'a' && character <= 'z') || isDigit(character);
}

function isDigit(character: string | undefined): boolean {
  return character !== undefined && character >= '0' && character <= '9';
}

/** Also matches `12-3456789`, and a JSON number without its leading zero. */
function numberPattern(ein: string): RegExp | undefined {
  if (!/^[0-9]{9}$/.test(ein)) return undefined;
  const [first = '', ...others] = ein;
  return new RegExp([first === '0' ? '0?' : first, ...others].join('[\\s\\p{Pd}]?'), 'gu');
}

function holdsNumber(text: string, pattern: RegExp): boolean {
  pattern.lastIndex = 0;
  for (let found = pattern.exec(text); found !== null; found = pattern.exec(text)) {
    if (!isDigit(text[found.index - 1]) && !isDigit(text[pattern.lastIndex])) return true;
    pattern.lastIndex = found.index + 1;
  }
  return false;
}
