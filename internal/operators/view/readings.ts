/** Reads the pods' `/readyz` and `/metrics`. */
import { lookup } from 'node:dns/promises';
import { isIPv6 } from 'node:net';
import { defined } from '../../platform/process/defined.ts';
import type { Fault } from '../../platform/process/fault.ts';
import { olderServerOf } from './older-words.ts';

/** The most pods that are asked; autoscaled ingest and processors stay far below it. */
const PODS_MAX = 200;
/** A pod that answers later is shown as one that does not answer. */
const POD_TIMEOUT_MS = 3_000;
/** An ingest with 100 partners has about 100 KB of metrics. */
const POD_ANSWER_BYTES = 2_000_000;

export interface Sample {
  /** The series: name and labels as printed. */
  readonly series: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** What is wrong, and the server that it is of. */
type Told = Pick<Fault, 'of' | 'words'>;

export interface Pod {
  /** The address of its admin port, such as `10.0.0.7:9090`. */
  readonly at: string;
  /** In Kubernetes the pod's; undefined if not known, or if several processes share it. */
  readonly name?: string;
  readonly component: string;
  readonly answers: boolean;
  /** The machine answers, and no process of ours. */
  readonly refuses?: true;
  /** Its name did not resolve, or the network did not reach it: nothing is known of it. */
  readonly isUnread?: true;
  readonly ready: boolean;
  readonly faults: readonly Told[];
  readonly warnings: readonly Told[];
  readonly samples: readonly Sample[];
}

/** `addresses` are origins; a name stands for all its addresses, as of a headless Service. */
export async function readPods(
  addresses: readonly string[],
  lookUp: LookUp = lookupAll,
): Promise<Pod[]> {
  const found = await Promise.all(addresses.map((address) => originsOf(address, lookUp)));
  let left = PODS_MAX;
  const groups = found.map(async (group) => {
    const some = group.slice(0, left);
    left -= some.length;
    const pods = await Promise.all(
      some.map(async (one) => (typeof one === 'string' ? readPod(one) : one)),
    );
    // One may hang. If no answer comes from any, not even of their machines, the network may be it.
    const isCut = pods.every(({ answers, refuses }) => !answers && !refuses);
    return isCut ? pods.map((pod) => ({ ...pod, isUnread: true as const })) : pods;
  });
  return (await Promise.all(groups)).flat();
}

type LookUp = (name: string) => Promise<readonly { readonly address: string }[]>;
const lookupAll: LookUp = (name) => lookup(name, { all: true });

async function originsOf(address: string, lookUp: LookUp): Promise<(string | Pod)[]> {
  const { hostname, port, host } = new URL(address);
  try {
    const found = await lookUp(hostname.replace(/^\[(.*)\]$/, '$1'));
    const hosts = new Set(found.map((one) => one.address));
    return [...hosts]
      .toSorted()
      .map((one) => `http://${isIPv6(one) ? `[${one}]` : one}:${port || '80'}`);
  } catch (error) {
    const { code = 'failed' } = error as { readonly code?: string };
    if (['ENOTFOUND', 'ENODATA'].includes(code))
      return [{ ...silentPod(host, 'no pod is found by this name'), refuses: true }];
    const why = `the name cannot be looked up (${code}), so what runs there was not read; check DNS`;
    return [{ ...silentPod(host, why), isUnread: true }];
  }
}

/** Never rejects: a pod that does not answer is a reading, too. */
async function readPod(origin: string): Promise<Pod> {
  const at = new URL(origin).host;
  try {
    const [health, metrics] = await Promise.all([
      textOf(`${origin}/readyz`),
      textOf(`${origin}/metrics`),
    ]);
    const { ok, faults, warnings, codes, name } = JSON.parse(health) as Record<string, unknown>;
    const first = sentences(faults);
    const told = toldBy([...first, ...sentences(warnings)], codes);
    const samples = samplesOf(metrics);
    return {
      at,
      ...(typeof name === 'string' ? { name } : {}),
      component: samples[0]?.labels['component'] ?? '',
      answers: true,
      ready: ok === true,
      faults: told.slice(0, first.length),
      warnings: told.slice(first.length),
      samples,
    };
  } catch (error) {
    const { code } = ((error as Error).cause ?? {}) as { readonly code?: string };
    const why = `does not answer at its admin port (${code ?? (error as Error).name})`;
    // Another answer than ours comes from there, too.
    const isThere = !(error instanceof TypeError || error instanceof DOMException);
    const refuses = isThere || REFUSALS.includes(code ?? '');
    return { ...silentPod(at, why), ...(refuses ? { refuses } : {}) };
  }
}

/** A host without the process answers so, or a process that ends. */
const REFUSALS = ['ECONNREFUSED', 'ECONNRESET', 'UND_ERR_SOCKET', 'EPIPE'];

function silentPod(at: string, fault: string): Pod {
  const none = { component: '', answers: false, ready: false, warnings: [], samples: [] };
  return { at, ...none, faults: [{ words: fault }] };
}

function sentences(list: unknown): string[] {
  return Array.isArray(list) ? list.map(String) : [];
}

/** A pod of a version without codes is read by its words. */
function toldBy(all: readonly string[], codes: unknown): Told[] {
  const known = Array.isArray(codes) ? (codes as readonly (Partial<Fault> | null)[]) : undefined;
  return all.map((words, at) => {
    const of = known === undefined ? olderServerOf(words) : known[at]?.of;
    return { words, ...defined({ of }) };
  });
}

const SERIES = /^(?:partner_ingest_|(?=process_start_time_seconds))((\w+)(?:\{(.*)\})?) (\S+)/gm;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Returns our own metrics, without their prefix, and when the process started. */
function samplesOf(text: string): Sample[] {
  return [...text.matchAll(SERIES)].map(
    ([, series = '', name = '', labels = '', value]): Sample => ({
      series,
      name,
      labels: Object.fromEntries(
        [...labels.matchAll(LABEL)].map(([, label, quoted]) => [label, quoted]),
      ),
      value: Number(value),
    }),
  );
}

async function textOf(address: string): Promise<string> {
  const response = await fetch(address, {
    redirect: 'error',
    signal: AbortSignal.timeout(POD_TIMEOUT_MS),
  });
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body ?? []) {
    bytes += part.length;
    if (bytes > POD_ANSWER_BYTES) throw new RangeError('the answer is too long');
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}
