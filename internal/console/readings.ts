/** What a pod's `/readyz` and `/metrics` say. */
import { POD_ANSWER_BYTES, POD_TIMEOUT_MS } from './limits.ts';

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Pod {
  /** Its admin port, as `10.0.0.7:9090`. */
  readonly at: string;
  readonly component: string;
  readonly answers: boolean;
  readonly ready: boolean;
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
  readonly samples: readonly Sample[];
}

const SERIES = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
const OURS = 'partner_ingest_';

/** Only our own metrics, without their prefix. */
export function samplesOf(text: string): Sample[] {
  return text.split('\n').flatMap((line) => {
    if (!line.startsWith(OURS)) return [];
    const [, name = '', labels = '', value = ''] = SERIES.exec(line) ?? [];
    const pairs = [...labels.matchAll(LABEL)].map(([, label = '', quoted = '']) => [label, quoted]);
    return [
      {
        name: name.slice(OURS.length),
        labels: Object.fromEntries(pairs) as Record<string, string>,
        value: Number(value),
      },
    ];
  });
}

/** Never rejects: a pod that does not answer is a reading, too. */
export async function readPod(origin: string): Promise<Pod> {
  const at = new URL(origin).host;
  try {
    const [health, metrics] = await Promise.all([
      textOf(`${origin}/readyz`),
      textOf(`${origin}/metrics`),
    ]);
    const { ok, faults, warnings } = JSON.parse(health) as Record<string, unknown>;
    const samples = samplesOf(metrics);
    const component = samples[0]?.labels['component'] ?? '';
    return {
      at,
      component,
      answers: true,
      ready: ok === true,
      faults: sentences(faults),
      warnings: sentences(warnings),
      samples,
    };
  } catch {
    return silentPod(at, 'does not answer at its admin port');
  }
}

export function silentPod(at: string, fault: string): Pod {
  const none = { component: '', answers: false, ready: false, warnings: [], samples: [] };
  return { at, ...none, faults: [fault] };
}

function sentences(list: unknown): string[] {
  return Array.isArray(list) ? list.map(String) : [];
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
