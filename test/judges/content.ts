/**
 * Runs in a process of its own: every shape through every reader, each with a budget of processor
 * time and memory. Says on standard output, before each reading, which it is, and tells each one
 * over its budget.
 *
 *     node --expose-gc --max-old-space-size=96 test/judges/content.ts SEED MIXTURES [CONTROL]
 */
import { readFileSync, writeFileSync, writeSync } from 'node:fs';
import { controls, service, type Control, type Reader } from './readers.ts';
import { shapes } from './shapes.ts';

const CPU_MS = 50;
const MEMORY_BYTES = 32 * 1024 * 1024;
/**
 * The quickest run counts: other processes take the caches of this one, and a first call is
 * not compiled.
 */
const TRIES = 4;
/** Runs of one shape. */
const FAULTS_MAX = 10;

interface Cost {
  readonly cpuMs: number;
  /** Pages of this process at the most, beyond those before; 0 where the kernel does not say. */
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
  // Sets the highest figure to the present one.
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

/** Of memory the first try counts: what has grown for it does not grow again. */
function judge(read: Reader, body: Buffer): Cost {
  const { cpuMs, bytes } = measure(read, body);
  const times = [cpuMs];
  while (times.length < TRIES && Math.min(...times) > CPU_MS) {
    globalThis.gc?.();
    times.push(measure(read, body).cpuMs);
  }
  return { cpuMs: Math.min(...times), bytes };
}

const [seed = '1', mixtures = '0', control] = process.argv.slice(2);
const readers = control === undefined ? service : { [control]: controls[control as Control] };
let [readings, faults] = [0, 0];
const most = { cpuMs: 0, bytes: 0 };
const say = (line: object): void => void writeSync(1, `${JSON.stringify(line)}\n`);
// What the first reading loads is not its own.
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
