/**
 * The measured path of a POST: which functions of ours a live application calls in ingest, and in
 * the processor until its e-mail is handed over and the request is completed.
 */
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import { send } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { inspect, type Calls, type Inspector, type Named } from './inspector.ts';

/** Fill caches, open connections, and let V8 see each branch once. */
const WARM_UP = 5;
/** After-effects of a request, such as a timer of a second, have ended by then. */
const REST_MS = 3_000;
const WINDOWS = 10;
/** What the end of a request still causes, such as telling it to ingest. */
const AFTER_MS = 200;

export interface Call extends Named {
  readonly calls: number;
}

export interface Sums {
  readonly files: number;
  readonly functions: number;
  readonly calls: number;
}

/** The functions of each process in the order of their first calls. */
export type MeasuredPath = Readonly<Record<Process, readonly Call[]>>;

type Process = 'ingest' | 'processor';

export function sumsOf(calls: readonly Call[]): Sums {
  return {
    files: new Set(calls.map(({ file }) => file)).size,
    functions: calls.length,
    calls: calls.reduce((sum, one) => sum + one.calls, 0),
  };
}

/** What a measurement runs on; both processes are started with `INSPECTED` and alone on it. */
export interface Measured {
  readonly ingest: ServiceProcess;
  readonly processor: ServiceProcess;
  readonly key: string;
  /** A new application. */
  readonly body: () => object;
  readonly isCompleted: (requestId: string) => Promise<boolean>;
}

/**
 * Sends one request at a time. The calls of a function are those of the window with the fewest,
 * less those of an equally long idle window with the most: so timers never count, and what they
 * share with a request counts a little less.
 */
export async function measurePath(on: Measured): Promise<MeasuredPath> {
  const both = { ingest: await inspect(on.ingest), processor: await inspect(on.processor) };
  try {
    for (let round = 0; round < WARM_UP; round += 1) await play(on);
    const busy = await windows(both, () => play(on));
    await pause(REST_MS);
    const idle = await windows(both, (index) => pause(busy.lengths[index]!));
    const [ingest, processor] = (['ingest', 'processor'] as const).map((name) =>
      less(combined(busy[name], Math.min), combined(idle[name], Math.max)),
    ) as [Calls, Calls];
    await both.ingest.noteOrder([...ingest.keys()]);
    await both.processor.noteOrder([...processor.keys()]);
    await Promise.all([both.ingest.forgetOrder(), both.processor.forgetOrder()]);
    await play(on);
    await pause(AFTER_MS);
    return {
      ingest: await inOrder(both.ingest, ingest),
      processor: await inOrder(both.processor, processor),
    };
  } finally {
    both.ingest.close();
    both.processor.close();
  }
}

async function windows(
  { ingest, processor }: Readonly<Record<Process, Inspector>>,
  use: (index: number) => Promise<void>,
) {
  const seen = { ingest: [] as Calls[], processor: [] as Calls[], lengths: [] as number[] };
  for (let index = 0; index < WINDOWS; index += 1) {
    await Promise.all([ingest.take(), processor.take()]);
    const begin = performance.now();
    await use(index);
    seen.lengths.push(performance.now() - begin);
    await pause(AFTER_MS);
    const [first, later] = await Promise.all([ingest.take(), processor.take()]);
    seen.ingest.push(first);
    seen.processor.push(later);
  }
  return seen;
}

async function play({ ingest, key, body, isCompleted }: Measured): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const application = JSON.stringify(body());
  const { status, text, json } = await send(ingest.url, { key, body: application, headers });
  if (status !== 202) throw new Error(`ingest answered ${status}: ${text}`);
  const { request_id: id } = (json as { readonly data: { readonly request_id: string } }).data;
  await eventually(`${id} to be completed`, () => isCompleted(id));
}

function combined(all: readonly Calls[], of: (...counts: number[]) => number): Calls {
  const keys = new Set(all.flatMap((calls) => [...calls.keys()]));
  return new Map([...keys].map((key) => [key, of(...all.map((calls) => calls.get(key) ?? 0))]));
}

const less = (calls: Calls, idle: Calls): Calls =>
  new Map(
    [...calls]
      .map(([key, count]) => [key, count - (idle.get(key) ?? 0)] as const)
      .filter(([, count]) => count > 0),
  );

async function inOrder(inspector: Inspector, calls: Calls): Promise<Call[]> {
  const order = [...(await inspector.order())];
  const named = [...calls].map(([key, count]) => ({ key, ...inspector.named(key), calls: count }));
  // V8 misses some first calls, as of a callback in optimized code: they stand behind the function
  // that is written before them.
  const byLine = named.toSorted((one, other) => one.line - other.line);
  for (const { key, file, line } of byLine) {
    if (order.includes(key)) continue;
    const before = byLine.findLast(
      (one) => one.file === file && one.line <= line && order.includes(one.key),
    );
    order.splice(before === undefined ? order.length : order.indexOf(before.key) + 1, 0, key);
  }
  return order.map((key) => {
    const { name, file, line } = inspector.named(key);
    return { name, file, line, calls: calls.get(key)! };
  });
}
