/**
 * Gives every shape to every reader within budgets of processor time and memory. Prints each
 * reading before it begins, and each one over budget. Arguments: --expose-gc --max-old-space-
 * size=96 test/judges/content.ts SEED MIXTURES [CONTROL]
 */
import { readFileSync, writeFileSync, writeSync } from 'node:fs';
import { controls, service, type Control, type Reader } from './readers.ts';
import { shapes } from './shapes.ts';

const CPU_MS = 50;
const MEMORY_BYTES = 32 * 1024 * 1024;
/** The quickest of the tries counts: the first runs before compilation, others may find caches cold. */
const TRIES = 4;
const FAULTS_MAX = 10;

interface Cost {
  readonly cpuMs: number;
  /** Additional memory of this process; 0 if the kernel does not report it. */
  readonly bytes: number;
}

function pages(field: 'VmRSS' | 'VmHWM'): number {
  if (process.platform !== 'linux') return 0;
  const found = new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(
    readFileSync('/proc/self/status', 'utf8'),
  );
  return Number(found?.[1] ?? 0) * 1024;
}

function measure(read: Reader, body: Buffer): Cost {
  // Resets the kernel's peak value.
  if (process.platform === 'linux') writeFileSync('/proc/self/clear_refs', '5');
  const before = pages('VmRSS');
  const began = process.cpuUsage();
  read(body);
  const { user, system } = process.cpuUsage(began);
  return { cpuMs: (user + system) / 1_000, bytes: pages('VmHWM') - before };
}

function isOver({ cpuMs, bytes }: Cost): boolean {
  return cpuMs > CPU_MS || bytes > MEMORY_BYTES;
}

/** For memory the first try counts, because memory does not grow twice. */
function judge(read: Reader, body: Buffer): Cost {
  const { cpuMs, bytes } = measure(read, body);
  const times = [cpuMs];
  while (times.length < TRIES && Math.min(...times) > CPU_MS) {
    globalThis.gc?.();
    times.push(measure(read, body).cpuMs);
  }
  return { cpuMs: Math.min(...times), bytes };
}

/** A process that ends at once must have written all; a full pipe is tried again. */
function say(line: object): void {
  let left = Buffer.from(`${JSON.stringify(line)}\n`);
  while (left.length > 0) {
    try {
      left = left.subarray(writeSync(1, left));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
    }
  }
}

const [seed = '1', mixtures = '0', control] = process.argv.slice(2);
const readers = control === undefined ? service : { [control]: controls[control as Control] };
let [readings, faults] = [0, 0];
const most = { cpuMs: 0, bytes: 0 };
// The first reading also loads code.
for (const read of Object.values(service)) read(Buffer.from('{}'));
for (const { name, body: make } of shapes(Number(seed), Number(mixtures))) {
  const body = make();
  for (const [reader, read] of Object.entries(readers)) {
    say({ reading: `${reader}: ${name}` });
    const { cpuMs, bytes } = judge(read, body);
    readings += 1;
    most.cpuMs = Math.max(most.cpuMs, cpuMs);
    most.bytes = Math.max(most.bytes, bytes);
    if (isOver({ cpuMs, bytes })) {
      faults += 1;
      say({
        fault: `${reader}: ${name}: ${Math.round(cpuMs)} ms, ${Math.round(bytes / 1024 / 1024)} MiB`,
      });
    }
    if (faults === (control === undefined ? FAULTS_MAX : 1)) process.exit(1);
  }
}
say({ readings, most });
process.exit(faults === 0 ? 0 : 1);
