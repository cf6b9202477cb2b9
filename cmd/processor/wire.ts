/** Constructs the processor's parts. */
import { hostname } from 'node:os';
import { Registry } from 'prom-client';
import { AccountQueries, AccountStore } from '../../internal/account/account-store.ts';
import { accountIndexes } from '../../internal/account/account.ts';
import { LedgerStore } from '../../internal/account/mail-ledger.ts';
import { Installation } from '../../internal/installation/installation.ts';
import { MailGate, SILENT_MS, SLOW_IN_ALL } from '../../internal/mail/mail-gate.ts';
import { MailPace, PACE_TIMEOUT_MS } from '../../internal/mail/mail-pace.ts';
import { createMailer, testMailer, relayOf, type Relay } from '../../internal/mail/mailer.ts';
import type { Outage } from '../../internal/mail/relay-answers.ts';
import { RelayTrust } from '../../internal/mail/relay-trust.ts';
import { loadTemplates, type Templates } from '../../internal/mail/message.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import { DAY_MS, later } from '../../internal/platform/process/clock.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import {
  type Opened,
  openProcess,
  type ProcessTools,
} from '../../internal/platform/open-process.ts';
import { Contact, contactFault } from '../../internal/platform/process/contact-failure.ts';
import type { Fault } from '../../internal/platform/process/fault.ts';
import { WriteContact } from '../../internal/platform/stores/mongo.ts';
import { createRedis } from '../../internal/platform/stores/redis.ts';
import { processSubmission } from '../../internal/processor/attempt.ts';
import { reportBounces, startBounceServer } from '../../internal/processor/bounce-server.ts';
import { Holds, OutageGate } from '../../internal/processor/outage-gate.ts';
import { FINISH_WORK_MS, Line, worksOf } from '../../internal/processor/line.ts';
import { Reconcile, RECONCILE_EVERY_MS } from '../../internal/processor/reconcile.ts';
import type { AttemptTools } from '../../internal/processor/step.ts';
import { Consumer } from '../../internal/queue/consume.ts';
import { HintSender, HintOutbox } from '../../internal/queue/enqueue.ts';
import { hintSchema } from '../../internal/queue/job.ts';
import {
  printableConfig,
  redisOf,
  retentionOf,
  type ConfigOf,
} from '../../internal/settings/settings.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { EarlierRequests } from '../../internal/submission/earlier-requests.ts';
import { submissionIndexes } from '../../internal/submission/submission.ts';
import { OperatorMoves, reportLateBounces } from '../../internal/submission/operator-moves.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import {
  createProcessorMetrics,
  PartnerLabels,
  type ProcessorMetrics,
} from '../../internal/telemetry/metrics.ts';
import { trafficIndexes } from '../../internal/traffic/traffic.ts';
import { TrafficCounter } from '../../internal/traffic/traffic-counter.ts';
import { operatorAuditIndexes } from '../../internal/self-audit/walk.ts';

const UNKNOWN_EVERY_MS = 60_000;
const UNKNOWN_MOST = 1_000;
const EXPIRE_EVERY_MS = 60_000;
const PROGRESS_DEADLINE_MS = 60_000;
/** Holds must take effect within five seconds. */
const FOLLOW_HOLDS_MS = 1_000;

const LOOK_AT_OWNER_MS = 1_000;

/** Longer than a read of the database that runs into its time limit, and one retry. */
const LOOP_FAILS_MS = 60_000;
/** Exceeds the workers' own deadline, so that they release their connections. */
const CLOSE_WORKERS_MS = FINISH_WORK_MS + 5_000;

export async function startProcessor(config: ConfigOf<'processor'>, tools: ProcessTools) {
  const { closers } = tools;
  // An operator's mistakes show before anything is opened.
  const relay = relayOf(config.SMTP_URL, config.SMTP_TLS);
  const templates = await loadTemplates(config.MAIL_TEMPLATES);
  const metrics = createProcessorMetrics(tools.registry);
  const opened = await openProcess(
    config,
    {
      name: 'processor',
      metrics,
      indexes: [
        ...submissionIndexes,
        ...accountIndexes,
        ...operatorAuditIndexes,
        ...trafficIndexes,
      ],
      traced: true,
    },
    tools,
  );
  const { contact, loops, clockKnown, adminUrl, ready, live, serving } = opened;
  const installation = new Installation(opened);
  const foreign = (): readonly Fault[] => installation.foreign(config.WATCH_NAMESPACES);
  ready.push(contact.hides(installation.faults), foreign);
  const parts = { ...opened, installation, templates };
  opened.trials.push((next) => tryMail(config, next as typeof config | undefined));

  const mail = openMail(config, relay, parts);
  const sender = new HintSender({ ...parts, ...redisOf(config) });
  installation.follow((id) => sender.follow(id));
  closers.add('queues', () => sender.close());
  const work = openWork(config, mail, sender, parts);
  let isWorking = false;
  const bounces = await openBounces(config, work.moves, () => isWorking, parts);

  const stopping = new AbortController();
  closers.add('start of work', () => stopping.abort());
  void Promise.all([contact.whenDone, clockKnown, installation.known]).then(async () => {
    while (foreign().length > 0 && !stopping.signal.aborted)
      await pause(LOOK_AT_OWNER_MS, stopping.signal);
    // A process that worked before another installation got the database ends its work.
    live.push(foreign);
    const holds = loops.start({
      name: 'holds',
      needed: true,
      everyMs: FOLLOW_HOLDS_MS,
      failsAfterMs: LOOP_FAILS_MS,
      run: () => work.holds.refresh(),
    });
    // Holds must be known before work.
    await holds.succeeded;
    if (stopping.signal.aborted) return;
    startWork(config, work, sender, parts);
    isWorking = true;
  });
  serving({ config: printableConfig(config), ...bounces });
  return { adminUrl, ...bounces };
}

async function openBounces(
  config: ConfigOf<'processor'>,
  moveTools: ReturnType<typeof openWork>['moves'],
  isOpen: () => boolean,
  { closers, ...parts }: ProcessorParts,
): Promise<{ readonly url?: string }> {
  const { HTTP_HOST: host, BOUNCES_PORT: port, BOUNCE_SECRETS: secrets } = config;
  if (secrets === undefined) return {};
  const { db } = parts;
  const moves = new OperatorMoves(moveTools);
  const stores = { accounts: new AccountQueries(db), submissions: new SupportQueries(db), moves };
  const server = await startBounceServer({
    ...parts,
    host,
    port,
    secrets,
    isOpen,
    report: (bounces) => reportBounces(bounces, { ...stores, clock: parts.clock }),
  });
  closers.add('bounces', () => server.close());
  return { url: server.url };
}

type ProcessorParts = Opened<ProcessorMetrics> & {
  readonly installation: Installation;
  readonly templates: Templates;
};

function openWork(
  config: ConfigOf<'processor'>,
  { mailer, mailGate, at }: ReturnType<typeof openMail>,
  sender: HintSender,
  { db, clock, log, loops, closers, metrics, templates, contact, warnings }: ProcessorParts,
) {
  const traffic = new TrafficCounter({ db, clock, loops });
  closers.add('traffic', () => traffic.close());
  const retries = new HintOutbox({ sender, results: metrics.hints });
  closers.add('retries', () => retries.whenEmpty());
  const tellEnd = (requestId: string): void => sender.ends.add(requestId);
  const moves = { db, retention: retentionOf(config), clock, tellEnd };
  const store = new WorkerMoves(moves);
  const accounts = new AccountStore({ db, clock });
  const writes = new WriteContact(db.client, log);
  warnings.push(contact.hides(writes.warnings));
  const outage = new OutageGate({
    takesWrites: () => store.takesWrites(),
    contact: writes,
    log,
    metrics,
  });
  closers.add('outage gate', () => outage.close());
  const holds = new Holds(new PartnerHolds({ db, clock }), metrics.partnersHeld);
  const onHold = (): readonly string[] => holds.partners();
  const {
    LOGIN_URL: loginUrl,
    LINK_SECRET: linkSecret,
    MAIL_FROM: from,
    MAIL_SUPPORT_CONTACT: supportContact,
  } = config;
  const { redis } = sender;
  const trust = new RelayTrust({ at, redis, installation: sender, metrics, clock, log });
  warnings.push(() => trust.warnings());
  const live: AttemptTools = {
    metrics,
    partnerLabels: new PartnerLabels(),
    traffic,
    clock,
    store,
    accounts,
    earlier: new EarlierRequests({ db, onHold }),
    hasten: (earlier) => reconcile.hasten(earlier),
    ledger: new LedgerStore({ db, clock }),
    mailer,
    trust,
    mailSettings: { from, loginUrl, linkSecret, supportContact, templates },
    holds,
    host: hostname(),
    log,
    outage,
    sendRetry: (retry) => retries.add(retry),
  };
  const mailerTo = (to: 'TEST_MAIL_TO' | 'PROBE_MAIL_TO') =>
    testMailer(mailer, to, config, (result) => metrics.testMails.inc({ to, result }));
  const ofTests = { db, clock, mode: { test: true } } as const;
  const test: AttemptTools = {
    ...live,
    // Not exported: a test counts in no metric of live work.
    metrics: createProcessorMetrics(new Registry()),
    // Tests are retried by `dueAt`, so that none is among the waiting jobs.
    sendRetry: () => {},
    accounts: new AccountStore(ofTests),
    earlier: new EarlierRequests({ ...ofTests, onHold }),
    ledger: new LedgerStore(ofTests),
    mailer: mailerTo('TEST_MAIL_TO'),
    trust: undefined,
    ...(config.PROBE_MAIL_TO === undefined ? {} : { probeMailer: mailerTo('PROBE_MAIL_TO') }),
  };
  const line = new Line({
    slots: config.PROCESSOR_CONCURRENCY,
    gate: mailGate,
    testsMail: config.TEST_MAIL_TO !== undefined,
    holds,
    work: (...wanted) => processSubmission({ live, test }, ...wanted),
  });
  outage.add(line);
  const due = new DueWork({ db, clock });
  const reconcile = new Reconcile({ due, line, store, holds, clock });
  return { line, outage, due, reconcile, holds, accounts, moves };
}

function startWork(
  config: ConfigOf<'processor'>,
  { line, outage, due, reconcile, accounts, moves }: ReturnType<typeof openWork>,
  sender: HintSender,
  { clock, installation, metrics, live, loops, log, closers, warnings }: ProcessorParts,
): void {
  const consumer = new Consumer({
    ...redisOf(config),
    log,
    warnings,
    receive: (hints, step) => line.put(worksOf(hints, step, clock.now())),
  });
  installation.follow((id) => consumer.follow(id));
  outage.add(consumer);
  closers.add(
    'workers',
    async () => {
      await consumer.close();
      const left = await line.close(AbortSignal.timeout(FINISH_WORK_MS));
      if (left.length > 0)
        await sender.send(left.map((work) => hintSchema.parse(work))).catch(() => {});
    },
    CLOSE_WORKERS_MS,
  );
  live.push(() => reconcile.faults(PROGRESS_DEADLINE_MS));
  const reading = loops.start({
    name: 'reconcile',
    needed: true,
    everyMs: RECONCILE_EVERY_MS,
    failsAfterMs: LOOP_FAILS_MS,
    run: () => reconcile.round(),
  });
  line.onServed = () => {
    if (reconcile.wanted) reading.wake();
  };
  loops.start({
    name: 'unknown_records',
    everyMs: UNKNOWN_EVERY_MS,
    failsAfterMs: 10 * UNKNOWN_EVERY_MS,
    run: async () => metrics.reconcileUnknown.set(await due.countUnknown(UNKNOWN_MOST)),
  });
  // Deletes what no TTL index can: raw bodies, data of released accounts. Reports late bounces.
  loops.start({
    name: 'expiry',
    everyMs: EXPIRE_EVERY_MS,
    failsAfterMs: 10 * EXPIRE_EVERY_MS,
    run: async () => {
      const releasedUntil = later(clock.now(), -config.RETENTION_COMPLETED_DAYS * DAY_MS);
      const more = [
        await due.removeBodies(),
        await accounts.forgetReleased(releasedUntil),
        await reportLateBounces(moves),
      ];
      return more.includes(true);
    },
  });
}

/* Constructs what hands e-mails to the relay. */

/** Why a new start would hand over no e-mail: its texts, login or sender. */
async function tryMail(
  { MAIL_TEMPLATES: folder }: ConfigOf<'processor'>,
  next: ConfigOf<'processor'> | undefined,
): Promise<Fault | undefined> {
  const texts = await loadTemplates(folder).catch((error: Error) => error);
  if (texts instanceof Error) return { code: 'templates_unusable', words: texts.message };
  if (next === undefined) return undefined;
  const relay = relayOf(next.SMTP_URL, next.SMTP_TLS);
  const mailer = createMailer({ ...mailerOf(next, relay), maxConnections: 1 });
  const outage = await mailer.probe().finally(() => mailer.close());
  return outage?.reason === 'refused' ? contactFault(placeOf(relay), outage.error) : undefined;
}

const placeOf = ({ host, port, secure: tls }: Relay) => ({
  name: 'Relay' as const,
  at: `${host}:${port}`,
  setting: 'SMTP_URL',
  speaks: 'a mail server',
  tls,
});

const mailerOf = (config: ConfigOf<'processor'>, relay: Relay) => ({
  relay,
  clientName: config.MAIL_CLIENT_NAME,
  from: config.MAIL_FROM,
  fromName: config.MAIL_FROM_NAME,
});

/** A relay that is silent for longer counts as away, and the processor is ready without it. */
const FIRST_ANSWER_MS = 15_000;

function openMail(config: ConfigOf<'processor'>, relay: Relay, parts: ProcessorParts) {
  const { clock, metrics, ready, warnings, log, closers } = parts;
  const maxConnections = mailPlaces(config) + SLOW_IN_ALL;
  const mailer = createMailer({ ...mailerOf(config, relay), maxConnections });
  closers.add('mailer', () => mailer.close());

  const { at } = placeOf(relay);
  const contact = new Contact(placeOf(relay), log);
  const fault = (code: string, words: string): Fault => {
    return { code, of: 'Relay', words: `Relay at ${at}: ${words}` };
  };
  // A rollout with a wrong password or sender stops at its first pod. Once the relay has taken
  // both, a refusal leaves the processor ready.
  let state: 'unknown' | 'refused' | 'away' | 'taken' = 'unknown';
  const giveUp = setTimeout(() => (state = state === 'unknown' ? 'away' : state), FIRST_ANSWER_MS);
  closers.add('first answer', () => clearTimeout(giveUp));
  ready.push(() => (state === 'refused' ? contact.warnings() : []));
  ready.push(() => (state === 'unknown' ? [fault('unanswered', 'it has not answered yet')] : []));
  warnings.push(() => (state === 'refused' ? [] : contact.warnings()));
  const show = (outage: Outage | undefined): void => {
    metrics.workerPaused.set({ waits_for: 'relay' }, outage === undefined ? 0 : 1);
    metrics.senderRefused.set(outage?.reason === 'refused' ? 1 : 0);
  };
  show(undefined);
  const onOutage = (outage: Outage | undefined): void => {
    show(outage);
    if (outage === undefined) contact.ok();
    else contact.failed(outage.error);
    if (state === 'taken') return;
    if (outage === undefined) state = 'taken';
    else state = outage.reason === 'refused' ? 'refused' : 'away';
  };
  const mailGate = new MailGate({
    places: mailPlaces(config),
    pace: openMailPace(config, parts),
    probe: () => mailer.probe(),
    onOutage,
    clock,
    log,
  });
  closers.add('mail gate', () => mailGate.close());
  warnings.push(() =>
    mailGate.isSilent
      ? [fault('silent', `it has answered no e-mail for ${SILENT_MS / 1_000} s`)]
      : [],
  );
  void mailGate.greet();
  return { mailer, mailGate, at };
}

function openMailPace(
  config: ConfigOf<'processor'>,
  { clock, closers, installation, ...tools }: ProcessorParts,
): MailPace | undefined {
  const { MAIL_PER_SECOND: perSecond, PROCESSOR_REPLICAS: processes } = config;
  if (perSecond === 0) return undefined;
  const { redisUrl, redisTls } = redisOf(config);
  const use = { commandTimeoutMs: PACE_TIMEOUT_MS };
  const redis = createRedis(redisUrl, use, { ...tools, redisTls });
  closers.add('mail pace', () => redis.disconnect());
  return new MailPace({ perSecond, processes, redis, installation, clock });
}

function mailPlaces(config: ConfigOf<'processor'>): number {
  return config.MAIL_CONNECTIONS === 0 ? config.PROCESSOR_CONCURRENCY : config.MAIL_CONNECTIONS;
}
