/** What the steps of an attempt work with. */
import type { AccountStore } from '../account/account-store.ts';
import type { Account, Intent } from '../account/account.ts';
import type { LedgerStore } from '../account/mail-ledger.ts';
import type { MailPlace } from '../mail/mail-gate.ts';
import type { Mailer } from '../mail/mailer.ts';
import type { MailSettings, Message } from '../mail/message.ts';
import type { RelayTrust } from '../mail/relay-trust.ts';
import type { Clock } from '../platform/process/clock.ts';
import { retryUntilDone } from '../platform/process/deadline.ts';
import type { LogFields, Logger } from '../platform/process/log.ts';
import type { Retry, Step } from '../queue/job.ts';
import type { DueRecord } from '../submission/due-work.ts';
import type { EarlierRequests } from '../submission/earlier-requests.ts';
import type { OpenState } from '../submission/states.ts';
import type { OpenRecord } from '../submission/submission.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import type { ProcessorMetrics, PartnerLabels } from '../telemetry/metrics.ts';
import type { TrafficCounter } from '../traffic/traffic-counter.ts';
import type { Claim } from './claim.ts';
import type { Holds, OutageGate } from './outage-gate.ts';

export const stepOf = {
  recorded: 'account',
  account_created: 'mail',
} as const satisfies Record<OpenState, Step>;

/** For live records, or for tests: these have accounts, a mailer and metrics of their own. */
export interface AttemptTools {
  readonly metrics: ProcessorMetrics;
  readonly partnerLabels: PartnerLabels;
  readonly traffic: Pick<TrafficCounter, 'ended' | 'mailed'>;
  readonly clock: Clock;
  readonly store: WorkerMoves;
  readonly accounts: AccountStore;
  readonly earlier: Pick<EarlierRequests, 'of'>;
  /** Brings an earlier request forward. */
  hasten(earlier: DueRecord): Promise<void>;
  readonly ledger: LedgerStore;
  readonly mailer: Pick<Mailer, 'handOver'>;
  /** None of tests: their e-mails go to one address, or nowhere. */
  readonly trust?: Pick<RelayTrust, 'judge'> | undefined;
  readonly mailSettings: MailSettings;
  /** Of tests: hands over the probe's e-mails; none without `PROBE_MAIL_TO`. */
  readonly probeMailer?: Pick<Mailer, 'handOver'>;
  readonly holds: Pick<Holds, 'has'>;
  readonly host: string;
  readonly log: Logger;
  readonly outage: Pick<OutageGate, 'closed' | 'note' | 'wait'>;
  /** May lose the job. */
  sendRetry(retry: Retry): void;
}

export interface Attempt {
  /** Its counts exclude this attempt. */
  readonly record: OpenRecord;
  readonly step: Step;
  readonly startedAt: Date;
  /** Of the hint that brought the record. */
  readonly traceparent?: string | undefined;
  /** Names the record in each line of the log. */
  readonly logFields: Pick<LogFields, 'request_id' | 'trace_id'>;
  readonly claim: Claim;
  /** Of an e-mail that the relay gets, or of an account whose e-mail may begin at once. */
  readonly place: MailPlace | undefined;
  /** The e-mail that the account's step began, and for which its move claimed the record. */
  readonly firstMail?: PreparedMail | undefined;
}

/** An e-mail to hand over, with the entry of the ledger that is stored before. */
export interface PreparedMail {
  readonly account: Account;
  readonly intent: Intent;
  readonly message: Message;
}

const SETTLE_RETRY = { firstMs: 500, capMs: 5_000 } as const;
const SETTLE_TRIES = 120;

/** Never rejects; a failed write is retried in the background, within bounds. */
export async function writeOrRetry(
  write: () => Promise<unknown>,
  { outage, log }: Pick<AttemptTools, 'outage' | 'log'>,
): Promise<void> {
  const enough = new AbortController();
  const onFailure = (_error: unknown, failures: number): void => {
    if (failures >= SETTLE_TRIES) enough.abort();
  };
  await write().catch((error: unknown) => {
    log.debug({ err: error }, 'not settled yet');
    const signal = AbortSignal.any([enough.signal, outage.closed]);
    void retryUntilDone(write, { ...SETTLE_RETRY, signal, onFailure });
  });
}
