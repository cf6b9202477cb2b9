/**
 * Sends a submission with a partner's test key. The standing probe and `helm test`
 * (charts/partner-ingest/files/send-one.mjs) use it.
 */
import { namedAsSent, sampleApplication } from '../application/fields.ts';
import { COMPLETES } from '../application/sandbox-endings.ts';
import { ContactError } from '../platform/process/contact-failure.ts';
import { pause } from '../platform/process/deadline.ts';

const CALL_TIMEOUT_MS = 10_000;
/** The longest that one look-up may wait. */
const MAX_WAIT_SECONDS = 30;
/** Pause after a look-up that a stopping pod cut short. */
const ASK_AGAIN_MS = 1_000;
/** Cuts quoted answers, which may come from any proxy. */
const MAX_QUOTED = 200;

export interface TestTarget {
  /** The URL up to and including `/api/v1`. */
  readonly baseUrl: string;
  readonly key: string;
  /** The setting to correct if `baseUrl` cannot be reached. */
  readonly setting: string;
}

/** Returns the `request_id`. Rejects in words for an operator if the answer is not a 202. */
export async function submitTest(
  target: TestTarget,
  { email, ein = COMPLETES }: { readonly email: string; readonly ein?: string },
  signal?: AbortSignal,
): Promise<string> {
  if (!/^pik_test_[\x21-\x7e]+$/.test(target.key))
    throw new Error('the key does not begin "pik_test_": a live key would make real accounts');
  const { data } = await expectData(202, target, '/capital/ingest', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(namedAsSent({ ...sampleApplication(), email, ein })),
    signal,
  });
  return data.request_id;
}

/** A test ended in another state than `completed`. */
class OtherEndError extends Error {
  readonly codes: readonly string[];
  constructor(message: string, codes: readonly string[]) {
    super(message);
    this.codes = codes;
  }
}

/** Resolves once the request is completed; else rejects with an error whose message says why. */
export async function testCompleted(
  target: TestTarget,
  requestId: string,
  withinMs: number,
  signal?: AbortSignal,
): Promise<void> {
  const until = performance.now() + withinMs;
  for (let leftMs = withinMs; leftMs > 0; leftMs = until - performance.now()) {
    const wait = Math.min(MAX_WAIT_SECONDS, Math.ceil(leftMs / 1_000));
    const { data, headers } = await expectData(200, target, `/capital/ingest/${requestId}`, {
      headers: { prefer: `wait=${wait}` },
      timeoutMs: wait * 1_000 + CALL_TIMEOUT_MS,
      signal,
    });
    const { state, reasons = [] } = data;
    if (state === 'completed') return;
    if (state !== 'processing') {
      const why = reasons.map(({ message }) => message).join('; ');
      const words = `${requestId} ended ${state}${why === '' ? '' : `: ${why}`}`;
      throw new OtherEndError(
        words,
        reasons.map(({ code }) => code),
      );
    }
    if (!headers.has('preference-applied')) await pause(ASK_AGAIN_MS, signal);
  }
  throw new Error(`${requestId} is still processing after ${withinMs / 1_000} s`);
}

/** Like `testCompleted`; false if another mail probe was sent in this interval. */
export async function mailTaken(...given: Parameters<typeof testCompleted>): Promise<boolean> {
  try {
    await testCompleted(...given);
    return true;
  } catch (error) {
    if (error instanceof OtherEndError && error.codes.some((code) => code.startsWith('duplicate_')))
      return false;
    throw error;
  }
}

/** The `data` of an answer. */
interface Data {
  readonly request_id: string;
  readonly state?: string;
  readonly reasons?: readonly { readonly code: string; readonly message: string }[];
}

interface Question extends Pick<RequestInit, 'method' | 'body'> {
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal | undefined;
}

/** Rejects in words for an operator if there is no answer. */
export async function ask(
  { baseUrl, setting }: Omit<TestTarget, 'key'>,
  path: string,
  { timeoutMs = CALL_TIMEOUT_MS, signal, ...request }: Question,
): Promise<{ readonly status: number; readonly headers: Headers; readonly text: string }> {
  const ended = AbortSignal.timeout(timeoutMs);
  try {
    const answer = await fetch(baseUrl + path, {
      ...request,
      // A redirect would turn the POST into a GET.
      redirect: 'manual',
      signal: signal === undefined ? ended : AbortSignal.any([signal, ended]),
    });
    return { status: answer.status, headers: answer.headers, text: await answer.text() };
  } catch (error) {
    const place = { name: 'Ingest', at: new URL(baseUrl).host, setting };
    throw new ContactError(place, error);
  }
}

async function expectData(
  status: number,
  target: TestTarget,
  path: string,
  question: Question,
): Promise<{ readonly data: Data; readonly headers: Headers }> {
  const headers = { ...question.headers, authorization: `Bearer ${target.key}` };
  const answer = await ask(target, path, { ...question, headers });
  const data = answer.status === status ? dataIn(answer.text) : undefined;
  if (data !== undefined) return { data, headers: answer.headers };
  throw new Error(`expected ${status}, got ${answer.status}: ${answer.text.slice(0, MAX_QUOTED)}`);
}

function dataIn(text: string): Data | undefined {
  try {
    return (JSON.parse(text) as { readonly data?: Data } | null)?.data;
  } catch {
    return undefined;
  }
}
