/**
 * The e-mail of a new account. If it may go at once, its hand-over is in the ledger from the
 * account's insert on, and the move that ends the account's step claims the record for it.
 */
import type { Account } from '../account/account.ts';
import { ledgerWith } from '../mail/ledger.ts';
import type { State } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import { untilSaid } from './apply-verdict.ts';
import { noteAborted, writeMail, type BegunMail, type MailTools } from './mail-applicant.ts';

/** What the step of the account leaves to the step of the e-mail. */
export interface FirstStep {
  readonly mail: BegunMail;
  /** As claimed by the move. */
  readonly record: SubmissionRecord;
  /** The monotonic time just before the claim request. */
  readonly claimedAtMs: number;
}

export class FirstMail {
  readonly #record: SubmissionRecord;
  readonly #mayGo: boolean;
  readonly #tools: MailTools;
  #begun: BegunMail | undefined;
  #next: FirstStep | undefined;

  /** `mayGo`: it has a place. */
  constructor(record: SubmissionRecord, mayGo: boolean, tools: MailTools) {
    this.#record = record;
    this.#mayGo = mayGo;
    this.#tools = tools;
  }

  /** Undefined if the record was not claimed for its e-mail. */
  get next(): FirstStep | undefined {
    return this.#next;
  }

  /** Adds the hand-over to an account that is about to be created. */
  begin(account: Account): Account {
    if (!this.#mayGo) return account;
    const { activation, ...mail } = writeMail(account, this.#claim, 1, this.#tools);
    const stored = { ...account, activation, mail: ledgerWith(mail.intent) };
    this.#begun = { ...mail, account: stored };
    return stored;
  }

  /** The account that was inserted is another one, or none. */
  keepFor(accountId: string | undefined): void {
    if (this.#begun?.account._id !== accountId) this.#begun = undefined;
  }

  /** Ends the step of the account: see `WorkerMoves.move`. */
  async move(...move: Parameters<WorkerMoves['move']>): Promise<State | undefined> {
    const { store, clock } = this.#tools;
    if (this.#begun === undefined) return store.move(...move);
    const claimedAtMs = clock.monotonicMs();
    const record = await store.moveOn(...move);
    if (record !== undefined) this.#next = { mail: this.#begun, record, claimedAtMs };
    return record?.state;
  }

  /** Does nothing if there is a `next`. */
  async giveUp(): Promise<void> {
    if (this.#begun === undefined || this.#next !== undefined) return;
    const { account, intent } = this.#begun;
    const attempt = { record: this.#record };
    await noteAborted(attempt, account, intent, this.#tools);
    // The move may have claimed the record although its answer was lost.
    const { _id: requestId } = this.#record;
    const position = { requestId, state: 'account_created', version: this.#claim } as const;
    const { store, clock } = this.#tools;
    await untilSaid(() => store.putBack(position, clock.now()), attempt, this.#tools);
  }

  get #claim(): number {
    return this.#record.version + 1;
  }
}
