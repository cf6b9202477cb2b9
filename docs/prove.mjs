/**
 * Sends tests to a live installation for as long as asked, while its operator does what he likes,
 * and keeps a history of what it was answered. Needs only Node: `BASE_URL=https://…/api/v1
 * API_KEY=pik_test_… node prove.mjs`. `SECONDS` (600): how long; then it looks at each accepted one
 * again, which takes more than half of that time. Ctrl-C begins with that. `PER_MINUTE` (200):
 * requests, below the installation's limit. `FILE` (history.jsonl): the history, which
 * `partner-ingest audit --history FILE` compares with what is stored. Ends with 0 if all it was told
 * agrees, 1 if not, 2 if it sent nothing.
 */
/* oxlint-disable node/no-process-env -- a program of its own, for partners */
import { createHash, randomInt, randomUUID } from 'node:crypto';
import { closeSync, openSync, writeSync } from 'node:fs';
import * as http from 'node:http';
import * as https from 'node:https';
import { setTimeout } from 'node:timers/promises';

const { BASE_URL = '', API_KEY = '', SECONDS = '600', PER_MINUTE = '200' } = process.env;
const { FILE = 'history.jsonl' } = process.env;
const SUBMIT = '/capital/ingest';
const ANSWER_MS = 30_000;
/** Requests under way at once; what is due beyond them waits. */
const MOST_OPEN = 50;
/** A repeat until an answer other than 408 or 500 comes, as the contract advises. */
const REPEATS = 20;
const REPEAT_AFTER_MS = 5_000;
/** The only end that follows another one. */
const BOUNCED = 'undeliverable';
const MOST_ANSWERED = 100_000;
const MOST_PRINTED = 20;
/** Of ten requests: one is malformed, one repeats an answered one, three look one up. */
const SHARES = 10;

const protocol = BASE_URL.startsWith('https:') ? https : http;
const agent = new protocol.Agent({ keepAlive: true, maxSockets: MOST_OPEN });

/** Status, `x-request-id` and JSON; rejects without a whole answer. */
function ask(method, path, { headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const outgoing = protocol.request(BASE_URL + path, {
      method,
      headers: { authorization: `Bearer ${API_KEY}`, ...headers },
      agent,
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    outgoing.on('error', reject);
    outgoing.on('response', async (incoming) => {
      try {
        let text = '';
        for await (const piece of incoming.setEncoding('utf8')) {
          text += piece;
          if (text.length > MOST_ANSWERED) throw new Error('the answer is too long');
        }
        const { statusCode: status, headers: got } = incoming;
        resolve({ status, xRequestId: got['x-request-id'], json: Object(JSON.parse(text)) });
      } catch (error) {
        reject(error);
      }
    });
    outgoing.end(body);
  });
}

let file;
let lines = 0;
function write(operation) {
  const time = Date.now() * 1_000_000;
  writeSync(file, `${JSON.stringify({ index: lines, ...operation, time })}\n`);
  lines += 1;
}

const counts = { accepted: 0, notAccepted: 0, unanswered: 0, repeats: 0, lookUps: 0 };
/** Accepted submissions by id, with their key, and the end that was told. */
const accepted = new Map();
const problems = [];
let processes = 0;

async function submit({ key, body }) {
  processes += 1;
  const operation = { process: processes, f: 'submit' };
  const sha256 = createHash('sha256').update(body).digest('hex');
  write({ type: 'invoke', ...operation, value: { idempotencyKey: key, sha256 } });
  const headers = { 'idempotency-key': `"${key}"`, 'content-type': 'application/json' };
  try {
    const { status, xRequestId, json } = await ask('POST', SUBMIT, { headers, body });
    const id = json.data?.request_id;
    // A proxy on the way answers these, so nobody knows what became of it.
    if (xRequestId === undefined) throw new Error(`answered ${status} without X-Request-Id`);
    const type = status === 202 ? 'ok' : 'fail';
    write({ type, ...operation, value: { status, id, xRequestId } });
    counts[status === 202 ? 'accepted' : 'notAccepted'] += 1;
    return { status, id };
  } catch (error) {
    write({ type: 'info', ...operation, value: {}, error: error.code ?? error.message });
    counts.unanswered += 1;
    return { status: 0 };
  }
}

/** Sends it until it is known to be accepted or not. */
async function submitUntilKnown(one) {
  for (let tries = 0; tries < REPEATS; tries += 1) {
    if (tries > 0) counts.repeats += 1;
    const { status, id } = await submit(one);
    if (status === 202) {
      const before = one.id ?? id;
      if (before !== id) problems.push(`${id}: its key was answered with ${before} before`);
      one.id = id;
      accepted.set(id, one);
      return;
    }
    if (status === 400 || status === 422) {
      if (one.valid) problems.push(`a valid submission was answered ${status}`);
      return;
    }
    if (status === 401 || status === 403) throw new Error(`the key was answered ${status}`);
    await setTimeout(REPEAT_AFTER_MS);
  }
}

async function lookUp(one) {
  // Of two look-ups at once, the older answer may come last.
  const { id, end } = one;
  processes += 1;
  const operation = { process: processes, f: 'look-up' };
  write({ type: 'invoke', ...operation, value: { id } });
  counts.lookUps += 1;
  try {
    const { status, json } = await ask('GET', `${SUBMIT}/${id}`);
    if (status !== 200 && status !== 404) throw new Error(`answered ${status}`);
    const state = json.data?.state;
    write({ type: 'ok', ...operation, value: { id, status, state } });
    if (status === 404) problems.push(`${id}: was answered 202, and is not found`);
    else if (end !== undefined && state !== end && !(end === 'completed' && state === BOUNCED))
      problems.push(`${id}: was ${end}, and is ${state}`);
    if (state !== 'processing') one.end = state;
    return true;
  } catch (error) {
    write({ type: 'fail', ...operation, value: { id }, error: error.code ?? error.message });
    return false;
  }
}

const ein = () => String(randomInt(100_000_000, 1_000_000_000));
const fresh = () => {
  const key = randomUUID();
  const fields = { email: `prove-${key}@example.com`, business_name: 'Prove', ein: ein() };
  return { key, body: JSON.stringify(fields), valid: true };
};

function next() {
  const some = [...accepted.values()];
  const earlier = some[randomInt(Math.max(1, some.length))];
  switch (randomInt(SHARES)) {
    case 0:
      return submitUntilKnown({ key: randomUUID(), body: '{"half":', valid: false });
    case 1:
      return submitUntilKnown(earlier ?? fresh());
    case 2:
    case 3:
    case 4:
      return earlier === undefined ? submitUntilKnown(fresh()) : lookUp(earlier);
    default:
      return submitUntilKnown(fresh());
  }
}

/** Every accepted submission has an end, or is found at least. */
async function lookAtAll(everyMs) {
  for (const one of accepted.values()) {
    let isFound = await lookUp(one);
    for (let tries = 1; tries < REPEATS && !isFound; tries += 1) {
      await setTimeout(REPEAT_AFTER_MS);
      isFound = await lookUp(one);
    }
    if (!isFound) problems.push(`${one.id}: ${REPEATS} look-ups had no answer`);
    await setTimeout(everyMs);
  }
}

async function run() {
  const everyMs = 60_000 / Number(PER_MINUTE);
  const endsAt = Date.now() + Number(SECONDS) * 1_000;
  const open = new Set();
  const failed = [];
  const stop = new AbortController();
  process.once('SIGINT', () => stop.abort());
  while (Date.now() < endsAt && !stop.signal.aborted && failed.length === 0) {
    if (open.size < MOST_OPEN) {
      const one = next().catch((error) => failed.push(error.message));
      open.add(one);
      void one.finally(() => open.delete(one));
    }
    await setTimeout(everyMs);
  }
  await Promise.all(open);
  const minutes = Math.ceil((accepted.size * everyMs) / 60_000);
  console.error(`looking at ${accepted.size} accepted submissions, about ${minutes} min …`);
  if (failed.length === 0) await lookAtAll(everyMs);
  const open202 = [...accepted.values()].filter(({ end }) => end === undefined).length;
  const told = `${accepted.size} accepted (${open202} without an end)`;
  const { notAccepted, unanswered, repeats, lookUps } = counts;
  console.log(
    `${told}; ${notAccepted} answers 4xx or 500, ${unanswered} without an answer, ${repeats} repeats, ${lookUps} look-ups`,
  );
  if (accepted.size === 0) problems.push('nothing was accepted, so nothing is proved');
  const all = [...failed, ...problems];
  for (const problem of all.slice(0, MOST_PRINTED)) console.log(problem);
  if (all.length > MOST_PRINTED) console.log(`… and ${all.length - MOST_PRINTED} more`);
  console.log(all.length === 0 ? `all agrees: ${FILE}` : `it does not agree: ${FILE}`);
  process.exitCode = all.length === 0 ? 0 : 1;
  agent.destroy();
}

const refusals = [
  [
    !/^https?:\/\/[^\s/?#@]+(\/[^\s?#]*)?\/api\/v1$/.test(BASE_URL) || !URL.canParse(BASE_URL),
    'BASE_URL must be a URL that ends in /api/v1',
  ],
  [!/^pik_test_[\w-]+$/.test(API_KEY), 'API_KEY must be a test key: pik_test_…'],
  [!/^[1-9]\d{0,5}$/.test(SECONDS), 'SECONDS must be 1 to 999999'],
  [!/^[1-9]\d{0,4}$/.test(PER_MINUTE), 'PER_MINUTE must be 1 to 99999'],
].flatMap(([wrong, sentence]) => (wrong ? [sentence] : []));

if (refusals.length === 0) {
  file = openSync(FILE, 'w');
  await run();
  closeSync(file);
} else {
  console.error(refusals.join('\n'));
  process.exitCode = 2;
}
