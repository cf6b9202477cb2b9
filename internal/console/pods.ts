/** Finds the pods of all processes and reads each every ten seconds. */
import { lookup } from 'node:dns/promises';
import { isIPv6 } from 'node:net';
import { PODS_MAX } from './limits.ts';
import { readPod, silentPod, type Pod } from './readings.ts';

/** `addresses` are origins; a name stands for all its addresses, as of a headless Service. */
export async function readPods(addresses: readonly string[]): Promise<Pod[]> {
  const found = await Promise.all(addresses.map(originsOf));
  const pods = found.flat().map(async (one) => (typeof one === 'string' ? readPod(one) : one));
  return Promise.all(pods.slice(0, PODS_MAX));
}

async function originsOf(address: string): Promise<(string | Pod)[]> {
  const { hostname, port, host } = new URL(address);
  try {
    const found = await lookup(hostname.replace(/^\[(.*)\]$/, '$1'), { all: true });
    const hosts = new Set(found.map((one) => one.address));
    return [...hosts]
      .toSorted()
      .map((one) => `http://${isIPv6(one) ? `[${one}]` : one}:${port || '80'}`);
  } catch {
    return [silentPod(host, 'no pod is found by this name')];
  }
}
