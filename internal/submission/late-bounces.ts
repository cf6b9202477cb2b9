/** Bounces the e-mails of tests that ask for it, as an operator's report of a late bounce does. */
import type { Collection } from 'mongodb';
import { mailReason } from '../application/reasons.ts';
import { lateBounce } from '../application/sandbox-endings.ts';
import { later, type Clock } from '../platform/process/clock.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import type { MoveTools } from './move-of.ts';
import { OperatorMoves } from './operator-moves.ts';
import { submissionCollection, type SubmissionRecord } from './submission.ts';

const AFTER_MS = 60_000;
const PAGE = 100;
const WORDS = 'a test: its e-mail bounces after the mail server took it';

export class LateBounces {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #moves: OperatorMoves;
  readonly #clock: Clock;

  constructor(options: MoveTools) {
    this.#collection = submissionCollection(options.db);
    this.#moves = new OperatorMoves(options);
    this.#clock = options.clock;
  }

  /** True if more may be due. */
  async report(): Promise<boolean> {
    const found = await this.#collection
      .find(
        {
          'applicant.ein': lateBounce.ein,
          test: true,
          state: 'completed',
          stateAt: { $lte: later(this.#clock.now(), -AFTER_MS) },
        },
        { projection: { state: 1, version: 1, accountId: 1 }, ...bounded },
      )
      .limit(PAGE)
      .toArray();
    const reasons = [mailReason(lateBounce.reason)];
    for (const seen of found)
      await this.#moves.move('report_bounce', { seen, accountId: seen.accountId, reasons }, WORDS);
    return found.length === PAGE;
  }
}
