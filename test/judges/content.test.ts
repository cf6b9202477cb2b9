/**
 * Bodies of any shape cost a reader at most 50 ms of processor time and 32 MiB, measured in a
 * process of its own.
 */
import { expect, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { controls, type Control } from './readers.ts';

const JUDGE = fileURLToPath(new URL('content.ts', import.meta.url));
const HEAP_MIB = 96;
const MIXTURES = 40;
const HANG_MS = 300_000;

interface Judgement {
  readonly code: number | null;
  readonly last: string;
  readonly faults: readonly string[];
  readonly readings: number;
}

async function judge(control?: Control): Promise<Judgement> {
  const words = [randomInt(1_000_000), MIXTURES, ...(control === undefined ? [] : [control])];
  const options = ['--expose-gc', `--max-old-space-size=${HEAP_MIB}`];
  const child = spawn(process.execPath, [...options, JUDGE, ...words.map(String)], {
    stdio: ['ignore', 'pipe', control === undefined ? 'inherit' : 'ignore'],
    timeout: HANG_MS,
    killSignal: 'SIGKILL',
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  const lines = (await text(child.stdout)).trim().split('\n');
  const said = lines.map(
    (line) => JSON.parse(line) as { reading?: string; fault?: string; readings?: number },
  );
  return {
    code: await ended,
    last: said.findLast(({ reading }) => reading !== undefined)?.reading ?? 'nothing',
    faults: said.flatMap(({ fault }) => fault ?? []),
    readings: said.at(-1)?.readings ?? 0,
  };
}

test(
  'every shape of body is read within its budget',
  async () => {
    const { code, last, faults, readings } = await judge();
    expect(faults).toEqual([]);
    expect({ code, last: code === 0 ? '' : last }).toEqual({ code: 0, last: '' });
    expect(readings).toBeGreaterThan(3_000);
  },
  HANG_MS,
);

test.each(Object.keys(controls) as Control[])(
  'the judge catches a reader that %s',
  async (control) => {
    const { code, last } = await judge(control);
    expect(code).not.toBe(0);
    expect(last).toContain(control);
  },
  HANG_MS,
);
