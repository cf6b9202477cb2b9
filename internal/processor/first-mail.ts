/**
 * The e-mail right after its account, under the claim that made it: three writes and a job fewer. Only where a slot is free soon
 * and a turn then, so that a slow relay keeps no account waiting; every other mail goes through the queue.
 */
import type { Account } from '../account/account.ts';
import { firstLedger } from '../mail/ledger.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { workOnClaimed } from './attempt.ts';
import {
  complete,
  handOverAndNote,
  intentOf,
  judge,
  noteAborted,
  notifying,
  writeMail,
  type Announced,
  type NotifyTools,
} from './notify-applicant.ts';
import type { Turn } from './sending.ts';

export interface FirstMailTools extends NotifyTools {
  /** Takes a mail slot of this process that is free soon, and gives what frees it. */
  reserveMailSlot(): Promise<(() => void) | undefined>;
}

export class FirstMail {
  readonly #turn: Turn;
  readonly #freeSlot: () => void;
  readonly #tools: FirstMailTools;
  #announced: Announced | undefined;

  private constructor(turn: Turn, freeSlot: () => void, tools: FirstMailTools) {
    this.#turn = turn;
    this.#freeSlot = freeSlot;
    this.#tools = tools;
  }

  /** A mail to `email` that may go out now; undefined if it goes through the queue. Ends by `goOn` or `giveUp`. */
  static async reserve(email: string, tools: FirstMailTools): Promise<FirstMail | undefined> {
    const freeSlot = await tools.reserveMailSlot();
    if (freeSlot === undefined) return undefined;
    const turn = tools.sending.turnNow(email);
    if (turn === undefined) {
      freeSlot();
      return undefined;
    }
    return new FirstMail(turn, freeSlot, tools);
  }

  /** Writes the mail; returns the account with what its ledger notes before a hand-over begins. */
  announce(account: Account, record: SubmissionRecord): Account {
    const intent = intentOf({ ...record, attempts: 0, ambiguous: 0 }, this.#tools);
    const { message, activation } = writeMail(account, intent, this.#tools);
    this.#announced = { account, intent, message };
    return { ...account, activation, mail: firstLedger(intent) };
  }

  /** The account was not stored, so nothing of the mail is noted anywhere. */
  retract(): void {
    this.#announced = undefined;
  }

  /**
   * Hands the mail over and completes the request, without keeping the caller waiting. `record` is as its move left it at
   * `confirmedAt`: the move confirmed the claim, and nothing comes between it and the mail.
   */
  goOn(record: SubmissionRecord, confirmedAt: number): void {
    const tools = this.#tools;
    const work: Parameters<typeof workOnClaimed>[1]['work'] = async (claimed, claim) => {
      const announced = this.#announced;
      if (announced === undefined) throw new Error('a mail goes out that was not announced');
      this.#announced = undefined;
      const handOver = await this.#turn.use(announced.account._id, () => handOverAndNote(announced, claim, tools));
      await judge(handOver, claimed, 0, tools);
      await complete(claimed, claim, tools);
    };
    void workOnClaimed(record, { ...notifying, work }, tools, {
      confirmedAt,
      startedAt: tools.clock.now(),
      links: [],
      // Where an operator's hold came first, the mail is still only announced.
    }).then(() => this.giveUp());
  }

  /** Frees the slot and the turn; a mail that was announced does not go out. */
  async giveUp(): Promise<void> {
    this.#turn.giveBack();
    const announced = this.#announced;
    if (announced !== undefined) await noteAborted(announced.account, announced.intent, this.#tools);
    this.#freeSlot();
  }
}
