/**
 * The line of work that is due: partner by partner in turn, each partner's oldest first.
 *
 * Work takes slots, and e-mails what the gate gives. Tests have few slots of their own, for both
 * steps, and wait while a live account waits. Work comes from jobs, from what is read as due
 * and from steps that end; a claim decides which process gets a record.
 */
import type { MailGate, MailPlace } from '../mail/mail-gate.ts';
import type { Hint, Step } from '../queue/job.ts';
import type { Holds } from './follow-holds.ts';

/** Of each step in memory; each takes about 300 bytes. */
export const LINE_MOST = 10_000;
/** In one process, so that they take little of the database from live work. */
const TESTS_AT_ONCE = 4;
/** With fewer of a step in memory, what is due is read at once. */
const LINE_LOW = 100;

export interface Work extends Hint {
  readonly partnerId: string;
  readonly step: Step;
  readonly dueAt: Date;
  /** No job brought it, and no worker has it. */
  readonly lost?: true;
}

/** What waits together. */
export type Lane = Step | 'test';
const laneOf = ({ test, step }: Pick<Work, 'test' | 'step'>): Lane => (test ? 'test' : step);

export function worksOf(records: readonly Hint[], step: Step, dueAt: Date): Work[] {
  return records.map((record) => ({ ...record, partnerId: record.partnerId ?? '', step, dueAt }));
}

export interface LineOptions {
  readonly slots: number;
  readonly gate: Pick<MailGate, 'choose' | 'begin' | 'onChange' | 'slow'>;
  readonly holds: Pick<Holds, 'has'>;
  /**
   * Resolves with what is left to do on the record. A rejection is ignored. An e-mail has a place,
   * and so has an account whose e-mail may begin at once: `onAccountEnd` is called before it.
   */
  work(
    work: Work,
    place: MailPlace | undefined,
    onAccountEnd: () => void,
  ): Promise<Work | undefined>;
}

export class Line {
  readonly #options: LineOptions;
  readonly #waiting: Readonly<Record<Lane, Turns>> = {
    account: new Turns(),
    mail: new Turns(),
    test: new Turns(),
  };
  readonly #inWork = new Map<string, Promise<void>>();
  #accounts = 0;
  #tests = 0;
  /** Neither step may keep all that becomes free. */
  #mailsTurn = false;
  #paused = false;
  #closed = false;
  /** Called when work has begun. */
  onServed = (): void => {};

  constructor(options: LineOptions) {
    this.#options = options;
    options.gate.onChange = () => this.#serve();
  }

  get paused(): boolean {
    return this.#paused;
  }

  get busy(): boolean {
    return this.#inWork.size > 0;
  }

  /** Whether little waits that may be done; what is on hold does not count. */
  isLow(lane: Lane): boolean {
    const turns = this.#waiting[lane];
    let count = 0;
    for (const partnerId of this.#partners(turns)) count += turns.countOf(partnerId);
    return count < LINE_LOW;
  }

  /** What finds no room is read later. */
  put(works: readonly Work[]): void {
    for (const work of works)
      if (!this.#inWork.has(work.requestId)) this.#waiting[laneOf(work)].put(work);
    this.#serve();
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#serve();
  }

  /** Waits for work under way until `signal`; resolves with the accounts not begun. */
  async close(signal: AbortSignal): Promise<Work[]> {
    this.#closed = true;
    const late = Promise.withResolvers<void>();
    signal.addEventListener('abort', () => late.resolve(), { once: true });
    const ended = Promise.all(this.#inWork.values());
    if (!signal.aborted) await Promise.race([ended, late.promise]);
    const { account, test } = this.#waiting;
    return [...account.all(), ...test.all().filter(({ step }) => step === 'account')];
  }

  #serve(): void {
    for (let begins = true; begins && !this.#paused && !this.#closed;)
      begins = this.#mailsTurn
        ? this.#beginMail() || this.#beginAccount() || this.#beginTest()
        : this.#beginAccount() || this.#beginMail() || this.#beginTest();
    this.onServed();
  }

  #beginMail(): boolean {
    const { gate } = this.#options;
    const { mail } = this.#waiting;
    const partnerId = gate.choose(this.#partners(mail));
    if (partnerId === undefined) return false;
    this.#mailsTurn = false;
    this.#begin(mail.take(partnerId), gate.begin(partnerId));
    return true;
  }

  #beginAccount(): boolean {
    const { slots, gate } = this.#options;
    const { account } = this.#waiting;
    const [first] = this.#partners(account);
    if (first === undefined || this.#accounts >= slots) return false;
    const placed = gate.choose(this.#partners(account));
    // Work in hand soon frees a place, and an e-mail that goes by the line costs three more
    // operations of the database.
    const waits = this.#accounts > 0 && this.#inWork.size - this.#tests - gate.slow >= slots;
    if (placed === undefined && waits) return false;
    this.#mailsTurn = true;
    this.#accounts += 1;
    const place = placed === undefined ? undefined : gate.begin(placed);
    this.#begin(account.take(placed ?? first), place);
    return true;
  }

  #beginTest(): boolean {
    const { account, test } = this.#waiting;
    const [live] = this.#partners(account);
    const [partnerId] = this.#partners(test);
    if (live !== undefined || partnerId === undefined || this.#tests >= TESTS_AT_ONCE) return false;
    this.#tests += 1;
    this.#begin(test.take(partnerId));
    return true;
  }

  *#partners(turns: Turns): Iterable<string> {
    for (const partnerId of turns.partners())
      if (!this.#options.holds.has(partnerId)) yield partnerId;
  }

  #begin(work: Work, place?: MailPlace): void {
    this.#inWork.set(work.requestId, this.#do(work, place));
  }

  async #do(work: Work, place?: MailPlace): Promise<void> {
    let hasSlot = true;
    const freeSlot = (): void => {
      if (hasSlot && work.test) this.#tests -= 1;
      else if (hasSlot && work.step === 'account') this.#accounts -= 1;
      hasSlot = false;
    };
    const onAccountEnd = (): void => {
      freeSlot();
      this.#serve();
    };
    const next = await this.#options.work(work, place, onAccountEnd).catch(() => undefined);
    // The slot is free before the place, which the next account may take.
    freeSlot();
    this.#inWork.delete(work.requestId);
    place?.release();
    this.put(next === undefined ? [] : [next]);
  }
}

/** Work of one step by partner. */
class Turns {
  /** In order of turns, each with its oldest work first. */
  readonly #ofPartner = new Map<string, Work[]>();
  readonly #known = new Map<string, Work>();

  get count(): number {
    return this.#known.size;
  }

  countOf(partnerId: string): number {
    return this.#ofPartner.get(partnerId)?.length ?? 0;
  }

  partners(): Iterable<string> {
    return this.#ofPartner.keys();
  }

  all(): Work[] {
    return [...this.#known.values()];
  }

  /** A partner may fill what others leave; full, each has an equal share. */
  put(work: Work): void {
    const { partnerId, requestId } = work;
    const known = this.#known.get(requestId);
    if (known !== undefined && known.version >= work.version) return;
    if (known !== undefined) this.#remove(known);
    const works = this.#ofPartner.get(partnerId) ?? [];
    const share = LINE_MOST / Math.max(1, this.#ofPartner.size);
    if (this.count >= LINE_MOST && works.length >= share) return;
    const index = works.findLastIndex(({ dueAt }) => dueAt <= work.dueAt) + 1;
    works.splice(index, 0, work);
    this.#ofPartner.set(partnerId, works);
    this.#known.set(requestId, work);
  }

  /** The partner's oldest; the partner then stands behind all others. */
  take(partnerId: string): Work {
    const works = this.#ofPartner.get(partnerId)!;
    const work = works.shift()!;
    this.#known.delete(work.requestId);
    this.#ofPartner.delete(partnerId);
    if (works.length > 0) this.#ofPartner.set(partnerId, works);
    return work;
  }

  #remove(work: Work): void {
    const works = this.#ofPartner.get(work.partnerId)!;
    works.splice(works.indexOf(work), 1);
    this.#known.delete(work.requestId);
    if (works.length === 0) this.#ofPartner.delete(work.partnerId);
  }
}
