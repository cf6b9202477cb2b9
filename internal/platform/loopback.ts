/** Recognizes this machine's own addresses. */
import ipaddr from 'ipaddr.js';

/** Takes a name or an address without brackets; makes no DNS query. */
export function isLoopback(host: string): boolean {
  return (
    host.toLowerCase() === 'localhost' ||
    (ipaddr.isValid(host) && ipaddr.process(host).range() === 'loopback')
  );
}
