/**
 * Reads addresses, and tests them against networks such as `192.0.2.0/24` or single addresses; which
 * proxy leads to them.
 */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = readonly [Address, number];

/**
 * Reads an address as sockets and proxies write it: `192.0.2.1:4711`, `[2001:db8::1]:4711`,
 * `fe80::1%eth0`. IPv4 mapped into IPv6 is IPv4; a zone, which names a link of one machine, is
 * dropped. Undefined for everything else, short forms such as `10.1` too.
 */
export function readAddress(text: string): Address | undefined {
  // Most texts are plain IPv4.
  if (isIP(text) === 4) return ipaddr.IPv4.parse(text);
  const [, bracketed, dotted] =
    /^(?:\[([^\]]+)\]|(\d+(?:\.\d+){3}))(?::(?:\d{1,5}|_[\w.-]+))?$/.exec(text) ?? [];
  const address = (bracketed ?? dotted ?? text).replace(/%[\w.-]+$/, '');
  return isIP(address) === 0 ? undefined : ipaddr.process(address);
}

function parse(text: string): Network | undefined {
  const [address = ''] = text.split('/');
  const kind = isIP(address);
  if (kind === 0 || address.includes('%')) return undefined;
  const network = text === address ? `${text}/${kind === 4 ? 32 : 128}` : text;
  if (!ipaddr.isValidCIDR(network)) return undefined;
  const [read, bits] = ipaddr.parseCIDR(network);
  if (!(read instanceof ipaddr.IPv6) || !read.isIPv4MappedAddress()) return [read, bits];
  // The first 96 bits only mark IPv4 mapped into IPv6.
  return bits < 96 ? undefined : [read.toIPv4Address(), bits - 96];
}

export function isNetwork(text: string): boolean {
  return parse(text) !== undefined;
}

/**
 * Whether `host` is this machine. Takes a name or an address without brackets; makes no DNS query.
 */
export function isLoopback(host: string): boolean {
  return (
    host.toLowerCase() === 'localhost' ||
    (ipaddr.isValid(host) && ipaddr.process(host).range() === 'loopback')
  );
}

/** Takes a text, or an address from `readAddress`. */
export type AddressTest = (address: string | Address) => boolean;

export function addressTest(networks: readonly string[]): AddressTest {
  const parsed = networks.map(parse).filter((network) => network !== undefined);
  return (given) => {
    if (parsed.length === 0) return false;
    const address = typeof given === 'string' ? readAddress(given) : given;
    return address !== undefined && parsed.some((network) => holds(network, address));
  };
}

function holds([network, bits]: Network, address: Address): boolean {
  return network.kind() === address.kind() && address.match(network, bits);
}

/** As in a URL: an IPv6 address stands in brackets. */
export const authorityOf = ({
  host,
  port,
}: {
  readonly host: string;
  readonly port: number | string;
}): string => `${host.includes(':') ? `[${host}]` : host}:${port}`;

/*
 * The proxies of the environment, checked and applied, for operators: `HTTPS_PROXY`, `HTTP_PROXY`,
 * `NO_PROXY`.
 */

/** Why the address of a proxy cannot be used. It may hold a password, so it is not repeated. */
export function proxyFault(address: string): string | undefined {
  if (!/^https?:\/\//i.test(address))
    return 'must begin with http:// or https://, such as http://proxy:3128';
  const url = URL.parse(address);
  if (url === null || url.port === '0')
    return 'has no usable host or port: write http://proxy:3128, and percent-encode the signs of a password';
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    return 'must end after host and port: percent-encode the signs of a password';
  try {
    decodeURIComponent(url.username + url.password);
    return undefined;
  } catch {
    return 'has a % in user or password: percent-encode it as %25';
  }
}

/** `*`, or a name that is more than digits, with or without `.` or `*.` before it. */
const HOST = /^(?:\*|(?:\*?\.)?(?![\d.]+$)[\w-]+(?:\.[\w-]+)*\.?)$/;
const PORT_MAX = 65_535;

const bare = (host: string): string => host.replace(/^\[(.*)\](?=$|\/)/, '$1');

/** Entries of `NO_PROXY`: networks have no port. */
function entriesOf(
  no: string,
): { readonly text: string; readonly host: string; readonly port: string }[] {
  const texts = no.split(/[,\s]+/).filter(Boolean);
  return texts.map((text) => {
    const [, host = text, port = ''] = isNetwork(bare(text))
      ? []
      : (/^(.*[^:]):(\d+)$/.exec(text) ?? []);
    return { text, host: bare(host), port };
  });
}

/** Why `NO_PROXY` cannot be used. */
export function noProxyFault(no: string): string | undefined {
  const isUsable = ({ host, port }: { readonly host: string; readonly port: string }): boolean =>
    (isNetwork(host) || HOST.test(host)) &&
    (port === '' || (Number(port) > 0 && Number(port) <= PORT_MAX));
  const wrong = entriesOf(no).find((entry) => !isUsable(entry));
  return wrong === undefined
    ? undefined
    : `"${wrong.text}" is no host, .example.com, *.example.com, address, range such as 10.0.0.0/8, nor *`;
}

/** Whether an address is asked without a proxy. A name includes its subdomains. */
export function noProxyTest(no = ''): (url: URL) => boolean {
  const entries = entriesOf(no).map(({ host, port }) => ({
    isIn: addressTest([host]),
    name: host.toLowerCase().replace(/^\*?\.(?=.)|\.$/g, ''),
    port,
  }));
  return ({ hostname, port: given, protocol }) => {
    const host = bare(hostname).replace(/\.$/, '');
    const asked = given || (protocol === 'https:' ? '443' : '80');
    return entries.some(
      ({ isIn, name, port }) =>
        (port === '' || port === asked) &&
        (name === '*' || host === name || host.endsWith(`.${name}`) || isIn(host)),
    );
  };
}
