/**
 * A step of an attempt: what it works with, and the verdict that it returns. What follows from each
 * class of failure stands here, too.
 */
import { MongoError, MongoNetworkError, MongoServerSelectionError } from 'mongodb';
import type { AccountStore } from '../account/account-store.ts';
import type { Account, Intent } from '../account/account.ts';
import type { Reason, StoredReason } from '../application/reasons.ts';
import type { LedgerStore } from '../account/mail-ledger.ts';
import type { Blame, MailPlace } from '../mail/mail-gate.ts';
import type { Mailer } from '../mail/mailer.ts';
import type { MailSettings, Message } from '../mail/message.ts';
import type { HandOver } from '../mail/relay-answers.ts';
import type { Clock } from '../platform/process/clock.ts';
import { DeadlineError, jittered, retryUntilDone } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import type { Logger } from '../platform/process/log.ts';
import { NotDurableError } from '../platform/stores/mongo.ts';
import type { Retry, Step } from '../queue/job.ts';
import type { DueRecord } from '../submission/due-work.ts';
import type { EarlierRequests } from '../submission/earlier-requests.ts';
import type { OpenState } from '../submission/states.ts';
import type { OpenRecord, SubmissionRecord } from '../submission/submission.ts';
import type { Changes, Position, WorkerMoves } from '../submission/worker-moves.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import type { PartnerLabels } from '../telemetry/partner-labels.ts';

export const stepOf = {
  recorded: 'account',
  account_created: 'mail',
} as const satisfies Record<OpenState, Step>;

/** For live records, or for tests: these have accounts, a mailer and metrics of their own. */
export interface AttemptTools {
  readonly metrics: ProcessorMetrics;
  readonly partnerLabels: PartnerLabels;
  readonly clock: Clock;
  readonly store: WorkerMoves;
  readonly accounts: AccountStore;
  readonly earlier: Pick<EarlierRequests, 'of'>;
  /** Brings an earlier request forward. */
  hasten(earlier: DueRecord): Promise<void>;
  readonly ledger: LedgerStore;
  readonly mailer: Pick<Mailer, 'handOver'>;
  readonly mailSettings: MailSettings;
  /** Of tests: hands over the probe's e-mails; none without `PROBE_MAIL_TO`. */
  readonly probeMailer?: Pick<Mailer, 'handOver'>;
  readonly holds: { has(partnerId: string | undefined): boolean };
  readonly host: string;
  readonly log: Logger;
  readonly outage: {
    /** Ends what is still retried when the processor closes. */
    readonly closed: AbortSignal;
    wait(): void;
  };
  /** May lose the job. */
  sendRetry(retry: Retry): void;
}

export interface Attempt {
  /** Its counts exclude this attempt. */
  readonly record: OpenRecord;
  readonly claim: Claim;
  readonly step: Step;
  readonly startedAt: Date;
  /** Of an e-mail that the relay gets, or of an account whose e-mail may begin at once. */
  readonly place: MailPlace | undefined;
  /** The e-mail that the account's step began, and for which its move claimed the record. */
  readonly firstMail?: PreparedMail | undefined;
}

/** Allows three tries in a claim's 45 s. */
const RENEW_EVERY_MS = 15_000;
/** Leaves 10 s of a claim for a slow renewal. */
export const CLAIM_TRUSTED_MS = 35_000;
/** A confirmation this fresh is enough for an e-mail. */
export const CLAIM_FRESH_MS = 2_000;

type ClaimedRecord = Position & Pick<OpenRecord, 'partnerId'>;

interface ClaimTools {
  readonly clock: Clock;
  readonly store: WorkerMoves;
  readonly holds: AttemptTools['holds'];
}

export class Claim {
  readonly #record: ClaimedRecord;
  readonly #tools: ClaimTools;
  readonly #lost = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #confirmedAt: number;

  /** `confirmedAt` is the monotonic time just before the claim request. */
  constructor(record: ClaimedRecord, confirmedAt: number, tools: ClaimTools) {
    this.#record = record;
    this.#tools = tools;
    this.#confirmedAt = confirmedAt;
    this.#timer = setInterval(() => void this.#renew().catch(() => {}), RENEW_EVERY_MS);
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** False if nothing more may be done. Rejects if the store cannot be asked. */
  async confirm({ again = false } = {}): Promise<boolean> {
    if (again || this.#tools.clock.monotonicMs() - this.#confirmedAt > CLAIM_FRESH_MS)
      await this.#renew();
    return this.mayGoOn;
  }

  get mayGoOn(): boolean {
    // A process that was frozen must not act on an old confirmation.
    const age = this.#tools.clock.monotonicMs() - this.#confirmedAt;
    const onHold = this.#tools.holds.has(this.#record.partnerId);
    return !this.#lost.signal.aborted && age <= CLAIM_TRUSTED_MS && !onHold;
  }

  release(): void {
    clearInterval(this.#timer);
  }

  async #renew(): Promise<void> {
    const askedAt = this.#tools.clock.monotonicMs();
    const held = await this.#tools.store.renew(this.#record);
    if (held) this.#confirmedAt = askedAt;
    else this.#lost.abort();
  }
}

/** An e-mail to hand over, with the entry of the ledger that is stored before. */
export interface PreparedMail {
  readonly account: Account;
  readonly intent: Intent;
  readonly message: Message;
}

/** Only `transient` raises `attempts`; `ambiguous` has a count of its own. */
export type FailureClass =
  | 'permanent'
  | 'transient'
  /** The database is away or takes no writes. */
  | 'infrastructure'
  | 'relay'
  /** Our sender, settings, rights or disk are at fault. */
  | 'ours'
  | 'busy'
  /** The relay declines this mail for now. */
  | 'throttled'
  | 'ambiguous'
  /** Several workers died holding the record. */
  | 'crashed';

/** The step has done its work. */
export type Done = { readonly kind: 'done' } & (
  | { readonly event: 'create_account'; readonly changes: Changes }
  | {
      readonly event: 'reject';
      readonly changes: Changes & { readonly reasons: readonly Reason[]; readonly reason: string };
    }
  | { readonly event: 'complete'; readonly changes?: undefined }
);

export type Verdict =
  | Done
  /** The record is another worker's, or its partner is on hold. */
  | { readonly kind: 'lost' }
  /** An earlier request of the same applicant is decided first. */
  | { readonly kind: 'waits'; readonly since: Date; readonly delayMs: number }
  | Failed;

export const LOST: Verdict = { kind: 'lost' };

/** What a step returns; with the hand-over that the account's step may have put in the ledger. */
export interface StepEnd {
  readonly verdict: Verdict;
  readonly firstMail?: PreparedMail | undefined;
}

/** A pause is this share of the total back-off, within bounds. */
interface PauseRule {
  readonly share: number;
  readonly firstMs: number;
  readonly capMs: number;
}
/**
 * A share of 1 doubles: 30 s, 30 s, 1 min, 2, 4, 8, 16, 32 min, 1 h 4, 2 h 8, then every 4 h.
 * Failures that an operator corrects are retried more often.
 */
export const BACK_OFFS = {
  transient: { share: 1, firstMs: 30_000, capMs: 14_400_000 },
  ours: { share: 0.25, firstMs: 60_000, capMs: 900_000 },
  busy: { share: 0.05, firstMs: 30_000, capMs: 3_600_000 },
  throttled: { share: 1, firstMs: 5_000, capMs: 900_000 },
} as const satisfies Record<string, PauseRule>;
/** docs/privacy.md promises that a record ends after three days. */
export const BACKED_OFF_AT_MOST_MS = 3 * 86_400_000;
/** After the first ambiguous end and the second: a short fault of the relay makes no dead letter. */
const AMBIGUOUS_WAITS_MS = [30_000, 3_000_000] as const;
/** E-mails that no operator ordered; an unknown result counts as one. */
export const MAX_AMBIGUOUS = AMBIGUOUS_WAITS_MS.length + 1;

interface Failure {
  readonly failure: FailureClass;
  /** Support reads it, so it holds no personal data. */
  readonly words: string;
  /** Why the relay refused the applicant's address. */
  readonly reasons?: readonly StoredReason[];
}

type EndingClass = Exclude<FailureClass, 'infrastructure' | 'relay'>;

export type Failed = Failure &
  (
    | { readonly kind: 'later' }
    | {
        readonly kind: 'again';
        readonly delayMs: number;
        readonly counts: {
          readonly attempts: number;
          readonly ambiguous: number;
          readonly backedOffMs: number;
        };
      }
    | {
        readonly kind: 'end';
        readonly failure: EndingClass;
        readonly event: 'bounce' | 'give_up';
        readonly ambiguous: number;
      }
  );

type SoFar = Pick<SubmissionRecord, 'attempts' | 'ambiguous' | 'backedOffMs'>;

/** `ambiguous` includes this attempt's e-mail. */
export function verdictOfFailure(
  { attempts, ambiguous: before = 0, backedOffMs = 0 }: SoFar,
  { failure, words, reasons, ambiguous = before }: Failure & { readonly ambiguous?: number },
  random: () => number = Math.random,
): Failed {
  const end = (event: 'bounce' | 'give_up', ending: EndingClass): Failed => {
    return { kind: 'end', failure: ending, words, event, ambiguous, ...defined({ reasons }) };
  };
  const again = (waitMs: number): Failed => {
    const delayMs = jittered(waitMs, random);
    const counts = {
      attempts: attempts + (failure === 'transient' ? 1 : 0),
      ambiguous,
      backedOffMs: backedOffMs + delayMs,
    };
    return { kind: 'again', failure, words, delayMs, counts };
  };
  switch (failure) {
    case 'permanent':
      return end('bounce', failure);
    case 'crashed':
      return end('give_up', failure);
    case 'infrastructure':
    case 'relay':
      return { kind: 'later', failure, words };
    case 'ambiguous': {
      const waitMs = AMBIGUOUS_WAITS_MS[Math.max(0, ambiguous - 1)];
      return waitMs === undefined ? end('give_up', failure) : again(waitMs);
    }
    case 'transient':
    case 'ours':
    case 'busy':
    case 'throttled': {
      if (backedOffMs >= BACKED_OFF_AT_MOST_MS) return end('give_up', failure);
      const { share, firstMs, capMs } = BACK_OFFS[failure];
      return again(Math.min(capMs, Math.max(firstMs, backedOffMs * share)));
    }
  }
}

/** An error that a step throws is a failure of that step. */
export function verdictOfError(error: unknown, { record, step }: Attempt): Failed {
  const goal = step === 'account' ? 'creating the account' : 'mailing the applicant';
  const words = `${goal} failed: ${error instanceof Error ? error.name : 'unknown error'}`;
  return verdictOfFailure(record, { failure: classOfError(error), words });
}

/** Elections, shutdown or overload. FerretDB answers 1 while its PostgreSQL is away. */
const AWAY_CODES = new Set([
  1, 6, 7, 50, 64, 89, 91, 189, 262, 9_001, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436,
]);
/** Missing rights, a wrong password, a full disk or an impossible write concern. */
const OPERATOR_CODES = new Set([11, 13, 18, 79, 100, 8_000, 14_031]);

export function classOfError(error: unknown): FailureClass {
  if (error instanceof DeadlineError || error instanceof NotDurableError) return 'infrastructure';
  if (error instanceof MongoServerSelectionError || error instanceof MongoNetworkError)
    return 'infrastructure';
  // A failed item of a group write has only a code.
  const code = Number((error as { readonly code?: unknown } | undefined)?.code);
  if (OPERATOR_CODES.has(code)) return 'ours';
  if (AWAY_CODES.has(code)) return 'infrastructure';
  if (
    error instanceof MongoError &&
    (error.hasErrorLabel('RetryableWriteError') || /Pool|Topology/.test(error.name))
  ) {
    return 'infrastructure';
  }
  return 'transient';
}

export function classOfHandOver(
  handOver: Exclude<HandOver, { result: 'accepted' | 'aborted' }>,
  blame: Blame,
): FailureClass {
  if (blame === 'relay') return 'relay';
  switch (handOver.result) {
    case 'ambiguous':
      return 'ambiguous';
    case 'unreachable':
      return 'transient';
    case 'refused':
      return handOver.failure;
  }
}

const SETTLE_RETRY = { firstMs: 500, capMs: 5_000 } as const;
const SETTLE_TRIES = 120;

/** Never rejects; a failed write is retried in the background, within bounds. */
export async function writeOrRetry(
  write: () => Promise<unknown>,
  { record }: Attempt,
  { outage, log }: AttemptTools,
): Promise<void> {
  const enough = new AbortController();
  const onFailure = (_error: unknown, failures: number): void => {
    if (failures >= SETTLE_TRIES) enough.abort();
  };
  await write().catch((error: unknown) => {
    log.debug({ request_id: record._id, err: error }, 'not settled yet');
    const signal = AbortSignal.any([enough.signal, outage.closed]);
    void retryUntilDone(write, { ...SETTLE_RETRY, signal, onFailure });
  });
}
