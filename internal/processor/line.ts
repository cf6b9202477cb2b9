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
import type { PartnerHolds } from '../partner/flags.ts';
import type { Clock } from '../platform/process/clock.ts';
import { backoffMs, pause, withDeadline } from '../platform/process/deadline.ts';
import type { PlainGauge } from '../platform/process/registry.ts';
import { defined } from '../platform/process/defined.ts';
import type { Logger } from '../platform/process/log.ts';
import type { Hint, Step } from '../queue/job.ts';
import type { DueRecord, DueWork } from '../submission/due-work.ts';
import { FIRST_SIGHT_GRACE_MS, type SubmissionRecord } from '../submission/submission.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { stepOf } from './step.ts';

/** A whole hand-over, and ten seconds to record it. */
export const FINISH_WORK_MS = mailerLimits.beforeContentMs + mailerLimits.afterContentMs + 10_000;
/** The chart's grace period is five seconds longer. */
export const PROCESSOR_DRAIN_MS = FINISH_WORK_MS + 20_000;
/** With 15 s to the first sight and 15 s of grace, a lost job is repaired within 35 s. */
export const RECONCILE_EVERY_MS = 2_500;
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
  readonly probe?: SubmissionRecord['probe'];
}

/** What is left to do: a step for the line, or the e-mail, which goes on in the place it has. */
export type Left = { readonly due: Work } | { readonly goOn: () => Promise<void> };

/** What waits together. */
export type Lane = Step | 'test' | 'testMail';
const lanes: readonly Lane[] = ['account', 'mail', 'test', 'testMail'];

export function worksOf(records: readonly Hint[], step: Step, dueAt: Date): Work[] {
  return records.map((record) => ({ ...record, partnerId: record.partnerId ?? '', step, dueAt }));
}

/**
 * - `serving`: what may begin begins, whenever work comes, ends, or the gate says so.
 * - `paused`: the database is away. Work comes and ends, and none begins.
 * - `closed`: for good. Nothing begins, and what still waits is handed to other processes.
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
   * A rejection is ignored. An e-mail that the relay gets has a place, and so has a live account
   * whose e-mail may begin at once.
   */
  work(work: Work, place: MailPlace | undefined): Promise<Left | undefined>;
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
  /** Neither step may keep all that becomes free. */
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
    const first = { ...work, dueAt: FIRST };
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
    const [live] = this.#partners('account');
    const [partnerId] = this.#partners('test');
    if (live !== undefined || partnerId === undefined) return false;
    if (this.#inHand.test.size >= TESTS_AT_ONCE) return false;
    this.#begin('test', partnerId);
    return true;
  }

  #beginTestMail(): boolean {
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
    const { requestId } = work;
    const left = await this.#options.work(work, place).catch(() => undefined);
    if (left !== undefined && 'goOn' in left) {
      // Another account may have its slot meanwhile.
      const { account, mail } = this.#inHand;
      mail.set(requestId, account.get(requestId)!);
      account.delete(requestId);
      this.#serve();
      await left.goOn().catch(() => {});
    }
    // The slot is free before the place, which the next account may take.
    for (const lane of lanes) this.#inHand[lane].delete(requestId);
    place?.release();
    this.put(left !== undefined && 'due' in left ? [left.due] : []);
  }
}

/** Due before all other work. */
const FIRST = new Date(0);

const byDueAt = {
  mayFollow: (later: Work, earlier: Work): boolean => earlier.dueAt <= later.dueAt,
};

interface ReconcileDueTools {
  readonly due: Pick<DueWork, 'read' | 'readTests' | 'noteFirstSight'>;
  readonly line: Pick<Line, 'put' | 'hasten' | 'isLow' | 'busy'>;
  readonly store: Pick<WorkerMoves, 'takesWrites'>;
  readonly holds: Pick<Holds, 'partners'>;
  readonly clock: Pick<Clock, 'monotonicMs' | 'now'>;
}

/** Reads what is due into the line: retries whose job was lost, and records nobody works on. */
export class Reconcile {
  readonly #tools: ReconcileDueTools;
  #turnedAtMs: number;
  /** Until writes have been durable for a while, withdrawals are late. */
  #durableSinceMs: number | undefined;
  #more: readonly Lane[] = [];

  constructor(tools: ReconcileDueTools) {
    this.#tools = tools;
    this.#turnedAtMs = tools.clock.monotonicMs();
  }

  /** A process that neither reads what is due nor has work in hand must be started again. */
  faults(deadlineMs: number): string[] {
    const { line, clock } = this.#tools;
    const idleMs = clock.monotonicMs() - this.#turnedAtMs;
    if (line.busy || idleMs < deadlineMs) return [];
    return [`nothing was read for ${Math.round(idleMs / 1_000)} s, and no work is in hand`];
  }

  /** More is due, and the line has room for it. */
  get wanted(): boolean {
    return this.#more.some((lane) => this.#tools.line.isLow(lane));
  }

  /**
   * An unclaimed record is worked on only after a period of durable writes, so that a pending
   * withdrawal comes first.
   */
  async round(): Promise<boolean> {
    const { due, line, store, holds, clock } = this.#tools;
    this.#turnedAtMs = clock.monotonicMs();
    const durable = await store.takesWrites().catch(() => false);
    this.#durableSinceMs = durable ? (this.#durableSinceMs ?? clock.monotonicMs()) : undefined;
    const without = { withoutPartners: holds.partners() };
    const { records: live, full } = await due.read(without);
    const records = [...live, ...(line.isLow('test') ? await due.readTests(without) : [])];
    const fresh = records.filter(isFresh);
    await due.noteFirstSight(fresh);
    const ready = records.filter((record) => !isFresh(record) && this.#isSettled(record));
    // Records left out would fill the next page, too.
    const leftOut = fresh.length + ready.length < records.length;
    this.#more = leftOut ? [] : full.map((state) => stepOf[state]);
    line.put(ready.map(workOf));
    return this.wanted;
  }

  /**
   * Brings a record forward for which another one waits: once due, it is worked on next. A claim, a
   * back-off and the time for a withdrawal stay as they are.
   */
  async hasten(record: DueRecord): Promise<void> {
    const { due, line, clock } = this.#tools;
    // What a job brought was accepted.
    if (line.hasten(record._id)) return;
    if (record.dueAt === undefined || record.dueAt > clock.now()) return;
    if (isFresh(record)) await due.noteFirstSight([record]);
    else if (this.#isSettled(record)) line.put([{ ...workOf(record), dueAt: FIRST }]);
  }

  /** A withdrawal of an unclaimed record comes first; it is late until writes have been durable. */
  #isSettled({ version }: DueRecord): boolean {
    const { clock } = this.#tools;
    const durableMs = clock.monotonicMs() - (this.#durableSinceMs ?? Infinity);
    return version > 0 || durableMs >= FIRST_SIGHT_GRACE_MS;
  }
}

function isFresh({ version, firstSeenAt }: DueRecord): boolean {
  return version === 0 && firstSeenAt === undefined;
}

function workOf(record: DueRecord): Work {
  const { _id: requestId, version, partnerId = '', test, probe, state, dueAt } = record;
  const lost = version === 0 || record.claimedUntil !== undefined;
  return {
    requestId,
    version,
    partnerId,
    ...defined({ test, probe }),
    step: stepOf[state],
    dueAt: dueAt ?? new Date(0),
    ...(lost ? { lost } : {}),
  };
}

/** Which partners are on hold. */
export class Holds {
  readonly #flags: Pick<PartnerHolds, 'list'>;
  readonly #onHold: PlainGauge;
  #partners: ReadonlySet<string> = new Set();

  constructor(flags: Pick<PartnerHolds, 'list'>, onHold: PlainGauge) {
    this.#flags = flags;
    this.#onHold = onHold;
  }

  has(partnerId: string | undefined): boolean {
    return partnerId !== undefined && this.#partners.has(partnerId);
  }

  partners(): readonly string[] {
    return [...this.#partners];
  }

  /** Keeps the last known holds while they cannot be read. */
  async refresh(): Promise<void> {
    const onHold = await this.#flags.list();
    this.#partners = new Set(onHold.map(({ _id }) => _id));
    this.#onHold.set(onHold.length);
  }
}

const PROBE_BACKOFF = { firstMs: 250, capMs: 5_000 } as const;
export const PROBE_DEADLINE_MS = 15_000;

interface Pausable {
  pause(): void;
  resume(): void;
}

interface OutageTools {
  /** A set without a majority still answers reads. */
  readonly takesWrites: () => Promise<boolean>;
  readonly log: Logger;
  readonly metrics: Pick<ProcessorMetrics, 'workerPaused'>;
}

/** Pauses the workers while the database is away. */
export class OutageGate {
  readonly #tools: OutageTools;
  readonly #workers: Pausable[] = [];
  readonly #stop = new AbortController();
  #waiting: Promise<void> | undefined;

  constructor(tools: OutageTools) {
    this.#tools = tools;
    this.#show(0);
  }

  /** Ends what is still retried when the processor closes. */
  get closed(): AbortSignal {
    return this.#stop.signal;
  }

  add(worker: Pausable): void {
    this.#workers.push(worker);
    if (this.#waiting !== undefined) worker.pause();
  }

  wait(): void {
    if (this.#waiting !== undefined) return;
    this.#waiting = this.#waitOut().finally(() => {
      this.#waiting = undefined;
    });
  }

  close(): void {
    this.#stop.abort();
  }

  async #waitOut(): Promise<void> {
    const { takesWrites, log } = this.#tools;
    log.warn('work paused: the database is away');
    this.#show(1);
    for (const worker of this.#workers) worker.pause();
    for (let probes = 1; !this.closed.aborted; probes += 1) {
      const probe = withDeadline(takesWrites(), PROBE_DEADLINE_MS, 'probe');
      if (await probe.catch(() => false)) {
        for (const worker of this.#workers) worker.resume();
        this.#show(0);
        log.info({ probes }, 'work resumed');
        return;
      }
      await pause(backoffMs(probes, PROBE_BACKOFF), this.closed);
    }
  }

  #show(paused: 0 | 1): void {
    this.#tools.metrics.workerPaused.set({ waits_for: 'database' }, paused);
  }
}
