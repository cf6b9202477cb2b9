/**
 * The line: what is due, and who is next.
 *
 * Work comes from jobs, from what is read as due and from steps that end; a claim decides which
 * process gets a record. Partners take turns, each with its oldest first. Accounts take slots,
 * and e-mails what the gate gives. Tests have few slots of their own and wait while a live account
 * waits; those of their e-mails that the relay gets also wait for what the gate leaves.
 */
import { Turns } from '../fair/turns.ts';
import type { MailGate, MailPlace } from '../mail/mail-gate.ts';
import { mailerLimits } from '../mail/mailer.ts';
import type { Hint, Step } from '../queue/job.ts';
import { defined } from '../platform/process/defined.ts';
import type { DueRecord } from '../submission/due-work.ts';
import type { Holds } from './outage-gate.ts';

/** A whole hand-over, and ten seconds to record it. */
export const FINISH_WORK_MS = mailerLimits.beforeContentMs + mailerLimits.afterContentMs + 10_000;
/** The chart's grace period is five seconds longer. */
export const PROCESSOR_DRAIN_MS = FINISH_WORK_MS + 20_000;
/** Of each step in memory; each takes about 300 bytes. */
const LINE_MOST = 10_000;
/** In one process, so that they take little of the database from live work. */
const TESTS_AT_ONCE = 4;
/** Of a partner's tests; beyond it the e-mail of a test is not sent. */
export const TEST_MAILS_WAITING = 100;
/** With fewer of a step in memory, what is due is read at once. */
const LINE_LOW = 100;

export interface Work extends Hint {
  readonly partnerId: string;
  readonly step: Step;
  readonly dueAt: Date;
  /** No job brought it, and no worker has it. */
  readonly lost?: true;
  readonly probe?: DueRecord['probe'];
}

/** Due before all other work. */
export const DUE_FIRST = new Date(0);
const byDueAt = {
  mayFollow: (later: Work, earlier: Work): boolean => earlier.dueAt <= later.dueAt,
};

/** What waits together. */
export type Lane = Step | 'test' | 'testMail';
const lanes: readonly Lane[] = ['account', 'mail', 'test', 'testMail'];

export function workOf(
  { _id: requestId, partnerId = '', version, test, probe }: Omit<DueRecord, 'state'>,
  step: Step,
  dueAt: Date,
): Work {
  return { requestId, partnerId, version, step, dueAt, ...defined({ test, probe }) };
}

export function worksOf(records: readonly Hint[], step: Step, dueAt: Date): Work[] {
  return records.map((record) => ({ ...record, partnerId: record.partnerId ?? '', step, dueAt }));
}

/**
 * - `serving`: what may begin begins, whenever work comes, ends, or the gate says so.
 * - `paused`: the database is away. Work comes and ends, and none begins.
 * - `closed`: for good. Nothing begins. Accounts that wait are sent as jobs; e-mails are found by
 *   reconcile.
 */
type LineMode = 'serving' | 'paused' | 'closed';
const follows: Readonly<Record<LineMode, readonly LineMode[]>> = {
  serving: ['paused', 'closed'],
  paused: ['serving', 'closed'],
  closed: [],
};

export interface LineOptions {
  readonly slots: number;
  readonly gate: Pick<
    MailGate,
    'choose' | 'begin' | 'chooseTest' | 'beginTest' | 'onChange' | 'slow'
  >;
  /** The relay gets the e-mails of tests. */
  readonly testsMail?: boolean;
  readonly holds: Pick<Holds, 'has'>;
  /**
   * Resolves with what is due next of the record; a rejection is ignored. An e-mail that the relay
   * gets has a place, and so has a live account whose e-mail may begin at once: it then calls
   * `freeSlot`, and goes on.
   */
  work(
    work: Work,
    place: MailPlace | undefined,
    freeSlot: (requestId: string) => void,
  ): Promise<Work | undefined>;
}

export class Line {
  readonly #options: LineOptions;
  #mode: LineMode = 'serving';
  readonly #waiting: Readonly<Record<Lane, Turns<Work>>> = {
    account: new Turns(byDueAt),
    mail: new Turns(byDueAt),
    test: new Turns(byDueAt),
    testMail: new Turns(byDueAt),
  };
  /** The work that waits on each record. */
  readonly #known = new Map<string, { readonly work: Work; readonly lane: Lane }>();
  /** Until it ends, each record that is in work. */
  readonly #inHand: Readonly<Record<Lane, Map<string, Promise<void>>>> = {
    account: new Map(),
    mail: new Map(),
    test: new Map(),
    testMail: new Map(),
  };
  /** The step that began last; the other is tried next, so that neither takes every free place. */
  #lastBegun: Step = 'mail';
  /** Called when work has begun. */
  onServed = (): void => {};

  constructor(options: LineOptions) {
    this.#options = options;
    options.gate.onChange = () => this.#serve();
  }

  get paused(): boolean {
    return this.#mode === 'paused';
  }

  get busy(): boolean {
    return lanes.some((lane) => this.#inHand[lane].size > 0);
  }

  /** Whether little waits that may be done; what is on hold does not count. */
  isLow(lane: Lane): boolean {
    let count = 0;
    for (const partnerId of this.#partners(lane)) count += this.#waiting[lane].countOf(partnerId);
    return count < LINE_LOW;
  }

  /** What finds no room is read later. */
  put(works: readonly Work[]): void {
    for (const work of works) this.#wait(work);
    this.#serve();
  }

  /** Puts work before all other of its partner. False if it neither waits nor is in hand here. */
  hasten(requestId: string): boolean {
    const known = this.#known.get(requestId);
    if (known === undefined) return lanes.some((lane) => this.#inHand[lane].has(requestId));
    const { work, lane } = known;
    const turns = this.#waiting[lane];
    const first = { ...work, dueAt: DUE_FIRST };
    turns.remove(work.partnerId, work);
    turns.put(work.partnerId, first);
    this.#known.set(requestId, { work: first, lane });
    return true;
  }

  pause(): void {
    if (this.#mode !== 'closed') this.#become('paused');
  }

  resume(): void {
    if (this.#mode !== 'closed') this.#become('serving');
    this.#serve();
  }

  /** Waits for work under way until `signal`; resolves with the accounts not begun. */
  async close(signal: AbortSignal): Promise<Work[]> {
    this.#become('closed');
    const late = Promise.withResolvers<void>();
    signal.addEventListener('abort', () => late.resolve(), { once: true });
    const ended = Promise.all(lanes.flatMap((lane) => [...this.#inHand[lane].values()]));
    if (!signal.aborted) await Promise.race([ended, late.promise]);
    const left = [...this.#known.values()].map(({ work }) => work);
    return left.filter(({ step }) => step === 'account');
  }

  #become(mode: LineMode): void {
    if (!follows[this.#mode].includes(mode))
      throw new Error(`the line is ${this.#mode} and cannot become ${mode}`);
    this.#mode = mode;
  }

  #wait(work: Work): void {
    const { requestId, partnerId, version } = work;
    if (lanes.some((lane) => this.#inHand[lane].has(requestId))) return;
    const known = this.#known.get(requestId);
    if (known !== undefined && known.work.version >= version) return;
    if (known !== undefined) this.#waiting[known.lane].remove(known.work.partnerId, known.work);
    const lane = this.#laneOf(work);
    const turns = this.#waiting[lane];
    turns.put(partnerId, work);
    this.#known.set(requestId, { work, lane });
    const over = turns.count > LINE_MOST ? turns.giveWay() : undefined;
    if (over !== undefined) this.#known.delete(over.requestId);
  }

  #serve(): void {
    while (this.#mode === 'serving' && this.#beginNext());
    this.onServed();
  }

  #beginNext(): boolean {
    const live =
      this.#lastBegun === 'account'
        ? this.#beginMail() || this.#beginAccount()
        : this.#beginAccount() || this.#beginMail();
    return live || this.#beginTest() || this.#beginTestMail();
  }

  #beginMail(): boolean {
    const { gate } = this.#options;
    const partnerId = gate.choose(this.#partners('mail'));
    if (partnerId === undefined) return false;
    this.#lastBegun = 'mail';
    this.#begin('mail', partnerId, gate.begin(partnerId));
    return true;
  }

  #beginAccount(): boolean {
    const { slots, gate } = this.#options;
    const { account, mail } = this.#inHand;
    const [first] = this.#partners('account');
    if (first === undefined || account.size >= slots) return false;
    const placed = gate.choose(this.#partners('account'));
    // Work in hand, but for slow e-mails, soon frees a place. Without one the account's e-mail goes by
    // the line, which costs three more operations of the database.
    const busy = account.size + mail.size - gate.slow;
    if (placed === undefined && account.size > 0 && busy >= slots) return false;
    this.#lastBegun = 'account';
    const place = placed === undefined ? undefined : gate.begin(placed);
    this.#begin('account', placed ?? first, place);
    return true;
  }

  #beginTest(): boolean {
    const [partnerId] = this.#partners('test');
    if (partnerId === undefined || this.#inHand.test.size >= TESTS_AT_ONCE) return false;
    const [live] = this.#partners('account');
    if (live !== undefined) return false;
    this.#begin('test', partnerId);
    return true;
  }

  #beginTestMail(): boolean {
    if (this.#waiting.testMail.count === 0) return false;
    const { gate } = this.#options;
    const [live] = this.#partners('account');
    const partnerId = live === undefined ? gate.chooseTest(this.#partners('testMail')) : undefined;
    if (partnerId === undefined) return false;
    this.#begin('testMail', partnerId, gate.beginTest(partnerId));
    return true;
  }

  /** The probe's e-mail waits behind no test. */
  #laneOf({ test, step, probe, partnerId }: Work): Lane {
    if (!test) return step;
    if (step === 'account' || probe === 'outcome') return 'test';
    if (probe === 'mail') return 'mail';
    const hasRoom = this.#waiting.testMail.countOf(partnerId) < TEST_MAILS_WAITING;
    return this.#options.testsMail === true && hasRoom ? 'testMail' : 'test';
  }

  *#partners(lane: Lane): Iterable<string> {
    for (const partnerId of this.#waiting[lane].owners())
      if (!this.#options.holds.has(partnerId)) yield partnerId;
  }

  #begin(lane: Lane, partnerId: string, place?: MailPlace): void {
    const work = this.#waiting[lane].takeOf(partnerId)!;
    this.#known.delete(work.requestId);
    this.#inHand[lane].set(work.requestId, this.#do(work, place));
  }

  async #do(work: Work, place?: MailPlace): Promise<void> {
    const due = await this.#options.work(work, place, this.#freeSlot).catch(() => undefined);
    // The slot is free before the place, which the next account may take.
    for (const lane of lanes) this.#inHand[lane].delete(work.requestId);
    place?.release();
    this.put(due === undefined ? [] : [due]);
  }

  /** The account is an e-mail in hand, and another account may have its slot. */
  readonly #freeSlot = (requestId: string): void => {
    const { account, mail } = this.#inHand;
    mail.set(requestId, account.get(requestId)!);
    account.delete(requestId);
    this.#serve();
  };
}
