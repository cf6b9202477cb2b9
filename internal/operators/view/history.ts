/** Compares a client's history, as prove.mjs and `make proof` keep it, with what is stored. */
import { z } from 'zod';
import { TESTS_KEPT_SECONDS } from '../../partner/key-terms.ts';
import type { Clock } from '../../platform/process/clock.ts';
import type { State } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import type { SupportQueries } from '../../submission/support-queries.ts';
import { totalOf } from './search.ts';

/** What a history contradicts; `meaning` completes "each …". */
export const broken = {
  lost: 'was answered 202 and is not stored',
  not_processed: 'was answered 202 and is stored as not accepted',
  altered: 'is stored with another body than was sent',
  processed_after_refusal: 'was answered 4xx or 500 and is stored as accepted',
  doubled_key: 'has the Idempotency-Key of another accepted request',
  not_found: 'was answered 202, and a later look-up did not find it',
  end_changed: 'had ended, and a later look-up told another end',
} as const;
export type Broken = keyof typeof broken;

const line = z.object({
  type: z.enum(['invoke', 'ok', 'fail', 'info']),
  process: z.union([z.number(), z.string().max(100)]),
  f: z.enum(['submit', 'look-up', 'read']),
  time: z.number(),
  value: z.object({
    sha256: z.string().max(64).optional(),
    idempotencyKey: z.string().max(255).optional(),
    status: z.number().optional(),
    id: z.string().max(100).optional(),
    xRequestId: z.string().max(100).optional(),
    state: z.string().max(50).optional(),
  }),
});
type HistoryLine = z.output<typeof line>;

/** A history that this process can compare in little memory; a longer one is split by its run. */
const MOST_LINES = 2_000_000;
const MOST_OPEN = 10_000;
const PAGE = 500;
const NS_PER_MS = 1_000_000;
const MS_PER_SECOND = 1_000;
const LISTED = 20;

const NOT_ACCEPTED: ReadonlySet<State> = new Set(['malformed', 'refused', 'withdrawn']);
/** Answers that name another request than the one they refuse. */
const NAMES_ANOTHER = 422;
const NOT_FOUND = 404;

export class HistoryError extends Error {
  override readonly name = 'HistoryError';
}

type StoredRecord = Pick<SubmissionRecord, 'state' | 'bodySha256' | 'erasedAt'>;

export interface HistoryView {
  readonly operations: number;
  readonly accepted: number;
  readonly notAccepted: number;
  /** Without an answer, so either may be true. */
  readonly unknown: number;
  /** Answered so long ago that a test may be deleted. */
  readonly pastRetention: number;
  readonly problems: number;
  readonly findings: readonly {
    readonly kind: Broken;
    readonly meaning: string;
    readonly count: number;
    readonly ids: readonly string[];
  }[];
}

/** Throws `HistoryError` with the number of a line that cannot be read. */
export async function historyView(
  lines: AsyncIterable<string>,
  submissions: Pick<SupportQueries, 'ofIds'>,
  clock: Clock,
): Promise<HistoryView> {
  const comparison = new Comparison(submissions, clock);
  for await (const operation of parsed(lines)) await comparison.add(operation);
  return comparison.end();
}

class Comparison {
  readonly #submissions: Pick<SupportQueries, 'ofIds'>;
  readonly #clock: Clock;
  readonly #counts = { operations: 0, accepted: 0, notAccepted: 0, unknown: 0, pastRetention: 0 };
  readonly #found = new Map<Broken, Set<string>>();
  /** With the end that was known when it was asked. */
  readonly #open = new Map<
    HistoryLine['process'],
    HistoryLine['value'] & { readonly end: string | undefined }
  >();
  readonly #idOfKey = new Map<string, string>();
  readonly #accepted = new Set<string>();
  readonly #ends = new Map<string, string>();
  #page: Answered[] = [];

  constructor(submissions: Pick<SupportQueries, 'ofIds'>, clock: Clock) {
    this.#submissions = submissions;
    this.#clock = clock;
  }

  async add({ type, process, f, time, value }: HistoryLine): Promise<void> {
    if (f === 'read') return;
    if (type === 'invoke') {
      this.#open.set(process, { ...value, end: this.#ends.get(value.id ?? '') });
      if (this.#open.size > MOST_OPEN)
        throw new HistoryError(`more than ${MOST_OPEN} requests at once`);
      return;
    }
    const sent = this.#open.get(process);
    this.#open.delete(process);
    this.#counts.operations += 1;
    const id = value.id ?? sent?.id;
    if (f === 'look-up') {
      if (type === 'ok' && id !== undefined) this.#look(id, value, sent?.end);
      return;
    }
    const at = time / NS_PER_MS;
    if (type === 'info') this.#counts.unknown += 1;
    if (type === 'ok' && id !== undefined) this.#accept(id, at, sent);
    if (type === 'fail') {
      this.#counts.notAccepted += 1;
      const { xRequestId } = value;
      if (xRequestId !== undefined && value.status !== NAMES_ANOTHER)
        this.#page.push({ id: xRequestId, at, accepted: false, sha256: undefined });
    }
    if (this.#page.length >= PAGE) await this.#compare();
  }

  async end(): Promise<HistoryView> {
    await this.#compare();
    this.#counts.unknown += this.#open.size;
    // A repeat of the key may have been answered with what a 500 left.
    const refused = this.#found.get('processed_after_refusal');
    if (refused !== undefined)
      this.#found.set('processed_after_refusal', refused.difference(this.#accepted));
    const findings = [...this.#found]
      .filter(([, ids]) => ids.size > 0)
      .map(([kind, ids]) => ({
        kind,
        meaning: broken[kind],
        count: ids.size,
        ids: [...ids].slice(0, LISTED),
      }));
    const problems = totalOf(findings);
    return { ...this.#counts, problems, findings };
  }

  #accept(id: string, at: number, sent: HistoryLine['value'] | undefined): void {
    const { idempotencyKey: key, sha256 } = sent ?? {};
    this.#counts.accepted += 1;
    this.#accepted.add(id);
    if (key !== undefined && (this.#idOfKey.get(key) ?? id) !== id) this.#find('doubled_key', id);
    if (key !== undefined) this.#idOfKey.set(key, id);
    this.#page.push({ id, at, accepted: true, sha256 });
  }

  /**
   * Once a request has ended, only a bounce changes it. `before` is the end that was known when the
   * look-up began: of two at once, the older answer may come last.
   */
  #look(id: string, { status, state }: HistoryLine['value'], before: string | undefined): void {
    if (!this.#accepted.has(id)) return;
    if (status === NOT_FOUND) this.#find('not_found', id);
    if (state === undefined) return;
    const isBounce = before === 'completed' && state === 'undeliverable';
    if (before !== undefined && before !== state && !isBounce) this.#find('end_changed', id);
    if (state !== 'processing') this.#ends.set(id, state);
  }

  async #compare(): Promise<void> {
    const ids = this.#page.map(({ id }) => id);
    const records = await this.#submissions.ofIds(ids, { bodies: false });
    const stored = new Map(records.map((record) => [record._id, record]));
    const keptFrom = this.#clock.now().getTime() - TESTS_KEPT_SECONDS * MS_PER_SECOND;
    for (const one of this.#page) {
      const kind = compared(one, stored.get(one.id));
      // By the client's clock: an id may be invented.
      if (kind === 'lost' && one.at < keptFrom) this.#counts.pastRetention += 1;
      else if (kind !== undefined) this.#find(kind, one.id);
    }
    this.#page = [];
  }

  #find(kind: Broken, id: string): void {
    if (!this.#found.has(kind)) this.#found.set(kind, new Set());
    this.#found.get(kind)!.add(id);
  }
}

interface Answered {
  readonly id: string;
  /** In milliseconds of Unix time, by the client's clock. */
  readonly at: number;
  readonly accepted: boolean;
  readonly sha256: string | undefined;
}

async function* parsed(lines: AsyncIterable<string>): AsyncGenerator<HistoryLine> {
  let number = 0;
  for await (const text of lines) {
    number += 1;
    if (number > MOST_LINES) throw new HistoryError(`it has more than ${MOST_LINES} lines`);
    if (text.trim() === '') continue;
    const read = line.safeParse(jsonOf(text));
    if (!read.success) throw new HistoryError(`line ${number} is no operation of a history`);
    yield read.data;
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function compared(
  { accepted, sha256 }: Answered,
  stored: StoredRecord | undefined,
): Broken | undefined {
  if (stored === undefined) return accepted ? 'lost' : undefined;
  const isAccepted = !NOT_ACCEPTED.has(stored.state);
  if (!accepted) return isAccepted ? 'processed_after_refusal' : undefined;
  if (!isAccepted) return 'not_processed';
  const differs = sha256 !== undefined && stored.bodySha256 !== sha256;
  return differs && stored.erasedAt === undefined ? 'altered' : undefined;
}
