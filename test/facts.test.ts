/** Each producer of a fact with its reader: other words change no decision, and old words are read. */
import { createServer } from 'node:http';
import { expect, test } from '@jest/globals';
import { Activity } from '../internal/operators/view/activity.ts';
import { readPods } from '../internal/operators/view/readings.ts';
import { errorOf } from '../internal/operators/view/words.ts';
import { timeline } from '../internal/operators/view/timeline.ts';
import { describeFailure } from '../internal/mail/relay-answers.ts';
import { startAdminServer } from '../internal/platform/http/admin-server.ts';
import { Contact, contactFault } from '../internal/platform/process/contact-failure.ts';
import type { Fault } from '../internal/platform/process/fault.ts';
import { refusalIn } from '../internal/platform/process/follow-credentials.ts';
import { createLogger } from '../internal/platform/process/log.ts';
import { Loops } from '../internal/platform/process/loop.ts';
import { createRegistry } from '../internal/platform/process/registry.ts';
import { factOf } from '../internal/processor/mail-step.ts';
import { verdictOfError } from '../internal/processor/verdict.ts';
import { findingName, kindNamed } from '../internal/self-audit/rules.ts';
import {
  asLastError,
  asReason,
  type Fact,
  type SubmissionRecord,
} from '../internal/submission/submission.ts';
import { createProcessorMetrics } from '../internal/telemetry/metrics.ts';
import { listen } from './support/listen.ts';
import { newRecord } from './support/records.ts';
import { eventually } from './support/wait.ts';

const other = <Of extends Fault>(fault: Of): Of => ({ ...fault, words: 'other words' });
const failing = (fields: object): Error => Object.assign(new Error('x'), fields);

/** What pages show of a record that ended so. */
function shownOf(more: Partial<SubmissionRecord>, entry: object) {
  const history = [{ state: 'dead_lettered', at: new Date(0), attempt: 1, ...entry }];
  const record = { state: 'dead_lettered', history, ...more } as unknown as SubmissionRecord;
  return [errorOf(record), timeline(record, undefined, [])[0]?.what];
}
const storedBy = (fact: Fact) => shownOf(asLastError(fact), asReason(fact));

test.each([
  [
    { code: 'EAUTH', command: 'AUTH PLAIN', responseCode: 535 },
    'the relay refuses our login (EAUTH AUTH PLAIN 535)',
  ],
  [{ code: 'ECONNREFUSED' }, 'the relay cannot be reached (ECONNREFUSED)'],
  [{ code: 'ENEW' }, 'the relay could not be used (ENEW)'],
])('why the relay cannot be used is shown by its code: %j', (error, shown) => {
  const failure = describeFailure(failing(error), 'connecting');
  if (failure.result !== 'unreachable') throw new Error(failure.result);
  const fact = factOf(failure);
  const both = [shown, `given up: ${shown}`];
  expect(storedBy(fact)).toEqual(both);
  expect(storedBy(other(fact))).toEqual(both);
  // A version without codes stores the words alone.
  const { words } = fact;
  expect(shownOf({ lastError: words }, { reason: words })).toEqual(both);
  // And it leaves the fact of a newer version where it was.
  expect(shownOf({ ...asLastError(fact), lastError: 'the disk is full' }, {})[0]).toBe(
    'the disk is full',
  );
});

test.each([
  [
    {
      responseCode: 550,
      response: '550 5.1.1 no such user',
      code: 'EENVELOPE',
      command: 'RCPT TO',
    },
    'mail_refused',
    '550 5.1.1',
  ],
  [{ code: 'ECONNRESET' }, 'mail_unanswered', 'ECONNRESET'],
])('an e-mail that was not taken has a code, and its words are shown: %j', (error, code, of) => {
  const failure = describeFailure(
    failing(error),
    code === 'mail_refused' ? 'connected' : 'content',
  );
  if (failure.result === 'accepted' || failure.result === 'aborted')
    throw new Error(failure.result);
  const fact = factOf(failure);
  expect(fact).toMatchObject({ code, of });
  expect(storedBy(other(fact))[0]).toBe('other words');
});

test.each([
  [
    failing({ name: 'MongoServerError', code: 121, codeName: 'DocumentValidationFailure' }),
    'refused the write (code 121, its validation)',
  ],
  [failing({ name: 'MongoServerError', code: 2 }), 'answered with an error (code 2)'],
])('what the database said of a step is shown by its code: %j', (error, shown) => {
  const attempt = { step: 'account', record: newRecord() } as unknown as Parameters<
    typeof verdictOfError
  >[1];
  const { fact } = verdictOfError(error, attempt);
  const both = [`the database ${shown}`, `given up: the database ${shown}`];
  expect(storedBy(fact)).toEqual(both);
  expect(storedBy(other(fact))).toEqual(both);
  expect(shownOf({ lastError: fact.words }, { reason: fact.words })).toEqual(both);
});

test('crashes are shown by their code, and by the words of older versions', () => {
  const fact = { code: 'workers_died', words: 'its workers ended without a word, several times' };
  const shown = 'processors crashed while they worked on it';
  expect(storedBy(other(fact as Fact))).toEqual([shown, `given up: ${shown}`]);
  expect(shownOf({ lastError: fact.words }, {})[0]).toBe(shown);
});

const log = createLogger('facts', 'silent');

/** What the console makes of a processor whose `/readyz` tells this, changed by `as`. */
async function lineOf(told: readonly Fault[], as = (answer: object): object => answer) {
  const registry = createRegistry('processor');
  const { workerPaused, ready: readiness } = createProcessorMetrics(registry);
  for (const what of ['relay', 'database'] as const) workerPaused.set({ waits_for: what }, 1);
  const probes = { live: [], ready: [() => told.slice(0, 1)], warnings: [() => told.slice(1)] };
  const options = {
    host: '127.0.0.1',
    port: 0,
    registry,
    readiness,
    files: undefined,
    documents: {},
  };
  const pod = await startAdminServer({ ...options, ...probes });
  const answerOf = async (url: string): Promise<string> => {
    const text = await (await fetch(pod.url + url)).text();
    return url === '/readyz' ? JSON.stringify(as(JSON.parse(text) as object)) : text;
  };
  const front = createServer(({ url = '' }, response) => {
    void answerOf(url).then((text) => response.end(text));
  });
  const port = await listen(front);
  try {
    const activity = new Activity(new Date(0));
    activity.add(await readPods([`http://127.0.0.1:${port}`]), new Date(0));
    const { relay, database } = activity.line() ?? {};
    return [relay?.why, database?.why];
  } finally {
    front.close();
    await pod.close();
  }
}

test('the console finds why work waits by the code of the server, whatever the sentence', async () => {
  const contact = new Contact({ name: 'Relay', at: 'relay:25', setting: 'SMTP_URL' }, log);
  contact.failed(failing({ code: 'ECONNREFUSED' }));
  const relay = contact.warnings()[0]!;
  const database = contactFault({ name: 'MongoDB', setting: 'MONGODB_URI' }, failing({ code: 18 }));
  const none = { code: 'draining', words: 'Relay and MongoDB are fine' };
  expect(await lineOf([none, relay, database])).toEqual([relay.words, database.words]);
  expect(await lineOf([none, { ...relay, words: 'one' }, { ...database, words: 'two' }])).toEqual([
    'one',
    'two',
  ]);
  const older = (answer: object): object => ({ ...answer, codes: undefined });
  expect(await lineOf([database, relay], older)).toEqual([relay.words, database.words]);
  // What a pod answers is no reason to fail.
  for (const codes of ['x', [null, 7, { of: {} }], {}])
    expect(await lineOf([none], (answer) => ({ ...answer, codes }))).toEqual(
      Array(2).fill(expect.any(String)),
    );
});

test.each([
  [true, failing({ code: 18 })],
  [true, failing({ code: 13 })],
  [true, new Error('WRONGPASS invalid username-password pair')],
  [true, new Error('ssl/tls alert certificate required:SSL alert number 116')],
  [true, new Error('SSL alert number 80')],
  [true, new Error('SSL alert number 48')],
  [true, new Error('command insert requires authentication')],
  [true, failing({ code: 'ERR_OSSL_X509_KEY_VALUES_MISMATCH' })],
  [true, failing({ code: 'CERT_HAS_EXPIRED' })],
  [false, failing({ code: 'ECONNRESET' })],
  [false, failing({ code: 'ETIMEDOUT' })],
  [false, failing({ code: 'EPROTO' })],
  [false, failing({ reason: { type: 'ReplicaSetNoPrimary' } })],
  [undefined, failing({ code: 'ECONNREFUSED' })],
  [undefined, new Error('MISCONF Redis cannot save')],
])('whether a server refuses our credentials, %s, is told by its code: %s', (isSure, error) => {
  const fault = contactFault({ name: 'Store', setting: 'URL' }, error);
  const expected = isSure === undefined ? { fault: undefined, isSure: false } : { isSure };
  for (const told of [fault, other(fault)])
    expect(refusalIn([{ code: 'starting', words: fault.words }, told])).toMatchObject(expected);
});

test('the name of a finding that is put aside tells its kind', () => {
  expect(kindNamed(findingName(['overdue', 'req_1', 'a print']))).toBe('overdue');
});

test('loops that fail for one reason have its code', async () => {
  const loops = new Loops({
    log,
    closers: { add: () => {} },
    failing: { set: () => {} },
    faultOf: (error) => contactFault({ name: 'MongoDB', setting: 'MONGODB_URI' }, error),
  });
  const run = () => Promise.reject(failing({ code: 18 }));
  const started = ['a', 'b'].map((name) => loops.start({ name, everyMs: 1, failsAfterMs: 1, run }));
  const told = await eventually('both to fail', async () => {
    const faults = await loops.warnings();
    return faults[0]?.words.startsWith('failing loops: a, b: ') && faults;
  });
  expect(told).toMatchObject([{ code: 'login_refused', of: 'MongoDB' }]);
  for (const loop of started) await loop.stop();
});
