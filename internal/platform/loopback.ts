/** Which hosts are this machine itself. */
import ipaddr from 'ipaddr.js';

/** Takes a name or an address without brackets; asks no name server. */
export function isLoopback(host: string): boolean {
  return (
    host.toLowerCase() === 'localhost' ||
    (ipaddr.isValid(host) && ipaddr.process(host).range() === 'loopback')
  );
}
