/** Finds the pods of all processes and reads each every ten seconds. */
import { lookup } from 'node:dns/promises';
import { isIPv6 } from 'node:net';
import { PODS_MAX } from './limits.ts';
import { readPod, type Pod } from './readings.ts';

/** `addresses` are origins; a name stands for all its addresses, as of a headless Service. */
export async function readPods(addresses: readonly string[]): Promise<Pod[]> {
  const found = await Promise.all(addresses.map(originsOf));
  const pods = found.flatMap(({ origins, fault }) =>
    fault === undefined ? origins.map(readPod) : [Promise.resolve(fault)],
  );
  return Promise.all(pods.slice(0, PODS_MAX));
}

async function originsOf(
  address: string,
): Promise<{ readonly origins: readonly string[]; readonly fault?: Pod }> {
  const { hostname, port, host } = new URL(address);
  try {
    const found = await lookup(hostname.replace(/^\[(.*)\]$/, '$1'), { all: true });
    const hosts = new Set(found.map((one) => one.address));
    return {
      origins: [...hosts]
        .toSorted()
        .map((one) => `http://${isIPv6(one) ? `[${one}]` : one}:${port || '80'}`),
    };
  } catch {
    const faults = ['no pod is found by this name'];
    const none = { component: '', answers: false, ready: false, warnings: [], samples: [] };
    return { origins: [], fault: { at: host, ...none, faults } };
  }
}
