/** Searches a body for a person in linear time (docs/privacy.md). */

/** Both values are normalised. */
export interface Person {
  readonly email?: string;
  readonly ein?: string;
}

export function mentions({ email, ein }: Person, body: Uint8Array): boolean {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const patterns = [addressPattern(email), numberPattern(ein)].filter((one) => one !== undefined);
  for (const reading of readings(bytes)) {
    const text = reading.toLowerCase();
    if (patterns.some((pattern) => pattern.test(text))) return true;
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
    // HTML forms encode a blank as "+", and always encode "@".
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

function unescaped(text: string): string {
  return text.replaceAll(
    /(?:\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))+/g,
    (escapes) => JSON.parse(`"${escapes}"`) as string,
  );
}

function percentDecoded(text: string): string {
  return text.replaceAll(/(?:%[0-9a-fA-F]{2})+/g, (run) =>
    Buffer.from(run.replaceAll('%', ''), 'hex').toString('utf8'),
  );
}

/**
 * Does not find `jane@x.test` in `mary.jane@x.test` or `jane@x.test.au`. Compares only where a word
 * may begin, so the time is linear.
 */
function addressPattern(email = ''): RegExp | undefined {
  if (email.indexOf('@') < 1) return undefined;
  const begins = '(?:^|[^a-z0-9.+_-])[.+_-]*';
  const ends = '(?!(?:\\.?|-*)[a-z0-9])';
  return new RegExp(begins + RegExp.escape(email) + ends, 'u');
}

/** Also matches `12-3456789`, and a JSON number without its leading zero. */
function numberPattern(ein = ''): RegExp | undefined {
  if (!/^[0-9]{9}$/.test(ein)) return undefined;
  const [first = '', ...others] = ein;
  const digits = [first === '0' ? '0?' : first, ...others].join('[\\s\\p{Pd}]?');
  return new RegExp(`(?<![0-9])${digits}(?![0-9])`, 'u');
}
