/**
 * The line of work that is due: partner by partner in turn, each partner's oldest first.
 *
 * Accounts take a slot, e-mails what the gate gives. Tests have few slots of their own, for both
 * steps, and wait while an account waits that is not one. Work comes from jobs, from what is read as due
 * and from steps that end; a claim decides which process gets a record.
 */
import type { MailGate, MailPlace } from '../mail/mail-gate.ts';
import type { Hint, Step } from '../queue/job.ts';
import type { FirstStep } from './first-mail.ts';
import type { Holds } from './follow-holds.ts';
import { LINE_LOW, LINE_MOST, TESTS_AT_ONCE } from './limits.ts';

export interface Work extends Hint {
  readonly partnerId: string;
  readonly step: Step;
  readonly dueAt: Date;
  /** No job brought it, and no worker has it. */
  readonly lost?: true;
  /** The record is claimed for this e-mail, which has its place. */
  readonly first?: FirstStep;
}

/** What waits together. */
export type Lane = Step | 'test';
export const laneOf = ({ test, step }: Pick<Work, 'test' | 'step'>): Lane => (test ? 'test' : step);

export function worksOf(records: readonly Hint[], step: Step, dueAt: Date): Work[] {
  return records.map((record) => ({ ...record, partnerId: record.partnerId ?? '', step, dueAt }));
}

export interface LineOptions {
  readonly slots: number;
  readonly gate: Pick<MailGate, 'choose' | 'begin' | 'onChange'>;
  readonly holds: Pick<Holds, 'has'>;
  /** Resolves with what is left to do on the record. A rejection is ignored. */
  work(work: Work, place?: MailPlace): Promise<Work | undefined>;
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

  /** A place for an e-mail that may begin now, ahead of none that waits. */
  placeFor(partnerId: string): MailPlace | undefined {
    const { gate, holds } = this.#options;
    if (this.#paused || this.#closed || holds.has(partnerId)) return undefined;
    return gate.choose([partnerId]) === undefined ? undefined : gate.begin(partnerId);
  }

  #serve(): void {
    const { slots, gate } = this.#options;
    const { account, mail, test } = this.#waiting;
    while (!this.#paused && !this.#closed && this.#accounts < slots) {
      const [partnerId] = this.#partners(account);
      if (partnerId === undefined) break;
      this.#accounts += 1;
      this.#begin(account.take(partnerId), () => (this.#accounts -= 1));
    }
    while (!this.#paused && !this.#closed) {
      const partnerId = gate.choose(this.#partners(mail));
      if (partnerId === undefined) break;
      const place = gate.begin(partnerId);
      this.#begin(mail.take(partnerId), () => place.release(), place);
    }
    while (!this.#paused && !this.#closed && this.#tests < TESTS_AT_ONCE) {
      const [live] = this.#partners(account);
      const [partnerId] = this.#partners(test);
      if (live !== undefined || partnerId === undefined) break;
      this.#tests += 1;
      this.#begin(test.take(partnerId), () => (this.#tests -= 1));
    }
    this.onServed();
  }

  *#partners(turns: Turns): Iterable<string> {
    for (const partnerId of turns.partners())
      if (!this.#options.holds.has(partnerId)) yield partnerId;
  }

  #begin(work: Work, end: () => void, place?: MailPlace): void {
    const { requestId } = work;
    const done = this.#do(work, end, place).then((next) => {
      this.#inWork.delete(requestId);
      this.put(next === undefined ? [] : [next]);
    });
    this.#inWork.set(requestId, done);
  }

  async #do(work: Work, end: () => void, place?: MailPlace): Promise<Work | undefined> {
    const next = await this.#options.work(work, place).catch(() => undefined);
    end();
    if (next?.first === undefined) return next;
    this.#serve();
    const { place: own } = next.first;
    return this.#do(next, () => own.release(), own);
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
