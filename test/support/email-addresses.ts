/** Texts, and whether they are e-mail addresses, for schema, settings and applications. */
const x = (count: number): string => 'x'.repeat(count);
const long = (length: number): string => {
  const labels = `${`${x(61)}.`.repeat(3)}com`;
  return `${x(length - labels.length - 1)}@${labels}`;
};

export const addresses: readonly (readonly [string, boolean])[] = [
  ['accounts@partner.example', true],
  ["o'hara+tag@Example.COM", true],
  ['ann@xn--r8jz45g.xn--zckzah', true],
  [`${x(64)}@example.com`, true],
  [long(254), true],
  [long(255), false],
  ['ann@b@example.com', false],
  [`${x(65)}@example.com`, false],
  [`ann@${x(64)}.com`, false],
  ['ann', false],
  ['ann@example', false],
  ['ann@[192.0.2.1]', false],
  ['ann@example..com', false],
  ['"ann b"@example.com', false],
  ['ann@example.com\r\nBcc: eve@example.org', false],
  ['ann@example.com, eve@example.org', false],
  ['Ann <ann@example.com>', false],
  ['ännä@example.com', false],
  ['ann@exämple.com', false],
];
