/** Reads the header Prefer (RFC 7240). */

/**
 * The value of the preference with this name, empty where it has none. Undefined without it, or if
 * it is malformed. Of several only the first counts; parameters are ignored.
 */
export function preferenceIn(
  header: string | readonly string[] | undefined,
  name: string,
): string | undefined {
  if (header === undefined) return undefined;
  // A comma or a semicolon within quotes separates nothing.
  const preferences = String(header).match(/(?:[^",]|"(?:[^"\\]|\\.)*"?)+/g) ?? [];
  for (const preference of preferences) {
    const found = /^[^\s=;]+/.exec(preference.trimStart())?.[0] ?? '';
    if (found.toLowerCase() === name) return valueIn(preference.trimStart().slice(name.length));
  }
  return undefined;
}

/** Trims, because two patterns for blanks in a row would take quadratic time. */
function valueIn(text: string): string | undefined {
  const rest = text.trimStart();
  if (!rest.startsWith('=')) return rest === '' || rest.startsWith(';') ? '' : undefined;
  const [matched, quoted, plain = ''] =
    /^(?:"((?:[^"\\]|\\.)*)"|([^\s";]*))/.exec(rest.slice(1).trimStart()) ?? [];
  const behind = rest.slice(1).trimStart().slice(matched?.length).trimStart();
  if (behind !== '' && !behind.startsWith(';')) return undefined;
  return quoted?.replaceAll(/\\(.)/g, '$1') ?? plain;
}
