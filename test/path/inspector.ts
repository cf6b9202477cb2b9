/** Asks V8's inspector of a running process which functions of ours were called. */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { ROOT } from '../../tools/root.ts';

/** Starts a process with an inspector on a free port of the loopback. */
export const INSPECTED = { NODE_OPTIONS: '--inspect=127.0.0.1:0' };

const OURS = [pathToFileURL(`${ROOT}/cmd/`).href, pathToFileURL(`${ROOT}/internal/`).href];
const ANSWER_TIMEOUT_MS = 60_000;
/** Letters of a function without a name. */
const SHOWN_LETTERS = 48;

/** Functions of ours by their key, with the number of calls. */
export type Calls = ReadonlyMap<string, number>;

interface Place {
  readonly url: string;
  readonly startOffset: number;
  readonly endOffset: number;
}
export interface Named {
  readonly name: string;
  readonly file: string;
  readonly line: number;
}
interface Coverage {
  readonly result: readonly {
    readonly scriptId: string;
    readonly url: string;
    readonly functions: readonly {
      readonly functionName: string;
      readonly ranges: readonly [Omit<Place, 'url'> & { readonly count: number }];
    }[];
  }[];
}
interface Message {
  readonly id?: number;
  readonly result?: unknown;
  readonly error?: { readonly message: string };
}

export type Inspector = Awaited<ReturnType<typeof inspect>>;

/** Connects to a process that was started with `INSPECTED` and starts to count its calls. */
export async function inspect(service: ServiceProcess) {
  const said = service.lines.find((line) => line.startsWith('Debugger listening on '));
  const socket = new WebSocket(said?.slice('Debugger listening on '.length) ?? '');
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve, { once: true });
    socket.addEventListener('error', reject, { once: true });
  });
  const waiting = new Map<number, (message: Message) => void>();
  socket.addEventListener('message', ({ data }) => {
    const message = JSON.parse(String(data)) as Message;
    if (message.id !== undefined) waiting.get(message.id)?.(message);
  });
  let asked = 0;
  const ask = async <T>(method: string, params: object = {}): Promise<T> => {
    const id = (asked += 1);
    const { promise, resolve, reject } = Promise.withResolvers<Message>();
    waiting.set(id, resolve);
    const late = () => reject(new Error(`the inspector of ${service.name} did not answer`));
    const timer = setTimeout(late, ANSWER_TIMEOUT_MS);
    socket.send(JSON.stringify({ id, method, params }));
    const { result, error } = await promise.finally(() => {
      clearTimeout(timer);
      waiting.delete(id);
    });
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result as T;
  };

  const functions = new Map<string, Named & { readonly scriptId: string; readonly place: Place }>();
  const texts = new Map<string, string>();
  const textOf = (url: string): string => {
    const text = texts.get(url) ?? readFileSync(fileURLToPath(url), 'utf8');
    texts.set(url, text);
    return text;
  };

  /** The calls since the last take. A function that awaits is called again at each return. */
  async function take(): Promise<Calls> {
    const { result } = await ask<Coverage>('Profiler.takePreciseCoverage');
    const calls = new Map<string, number>();
    for (const { scriptId, url, functions: all } of result) {
      if (!OURS.some((folder) => url.startsWith(folder))) continue;
      for (const { functionName, ranges } of all) {
        const [{ startOffset, endOffset, count }] = ranges;
        // A whole file is a function that its import calls.
        if (count === 0 || startOffset === 0) continue;
        const text = textOf(url);
        const file = relative(ROOT, fileURLToPath(url));
        const key = `${file}:${startOffset}`;
        calls.set(key, count);
        const line = text.slice(0, startOffset).split('\n').length;
        const written = text.slice(startOffset, endOffset).split('\n')[0] ?? '';
        const name = functionName || written.slice(0, SHOWN_LETTERS);
        functions.set(key, { name, file, line, scriptId, place: { url, startOffset, endOffset } });
      }
    }
    return calls;
  }

  /** Has the process note the first call of each function. */
  async function noteOrder(keys: readonly string[]): Promise<void> {
    await ask('Debugger.enable');
    for (const key of keys) {
      const { scriptId, place } = functions.get(key)!;
      const at = (offset: number): object => {
        const lines = textOf(place.url).slice(0, offset).split('\n');
        return { scriptId, lineNumber: lines.length - 1, columnNumber: lines.at(-1)!.length };
      };
      const places = async (
        end: number,
        restrictToFunction: boolean,
      ): Promise<readonly object[]> => {
        const range = { start: at(place.startOffset), end: at(end), restrictToFunction };
        const found = await ask<{ readonly locations: readonly object[] }>(
          'Debugger.getPossibleBreakpoints',
          range,
        );
        return found.locations;
      };
      // `({ id }) => id` can only be stopped behind its last letter.
      const location =
        (await places(place.endOffset, true))[0] ??
        (await places(place.endOffset + 1, false)).at(-1);
      // Its condition is false, so the process never stops there.
      const condition = `(globalThis.firstCalls ??= new Set()).add(${JSON.stringify(key)}), false`;
      if (location !== undefined) await ask('Debugger.setBreakpoint', { location, condition });
    }
  }

  const forgetOrder = (): Promise<unknown> =>
    ask('Runtime.evaluate', { expression: 'globalThis.firstCalls = new Set()' });

  /** The functions in the order of their first calls since `forgetOrder`. */
  async function order(): Promise<readonly string[]> {
    const expression = '[...globalThis.firstCalls]';
    const { result } = await ask<{ readonly result: { readonly value: readonly string[] } }>(
      'Runtime.evaluate',
      { expression, returnByValue: true },
    );
    return result.value;
  }

  await ask('Profiler.enable');
  await ask('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  return {
    take,
    noteOrder,
    forgetOrder,
    order,
    named: (key: string): Named => functions.get(key)!,
    close: () => socket.close(),
  };
}
