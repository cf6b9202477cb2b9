/**
 * Runs every ending of a test key (contract.md) and prints what the network path changes. Needs only
 * Node: `BASE_URL=https://…/api/v1 API_KEY=pik_test_… node certify.mjs [ROW …]`. Ends within three
 * minutes: with 0 if every row is ok, 1 if one differs, 2 if it sent nothing. `WAIT_SECONDS` (30):
 * the longest wait and the idle time of a connection. `ANSWER_SECONDS` (15): the time for any other
 * answer.
 */
/* oxlint-disable node/no-process-env -- a program of its own, for partners */
import { randomUUID } from 'node:crypto';
import * as http from 'node:http';
import * as https from 'node:https';
import { setTimeout } from 'node:timers/promises';

const { BASE_URL = '', API_KEY = '', WAIT_SECONDS = '30', ANSWER_SECONDS = '15' } = process.env;
const SUBMIT = '/capital/ingest';
const LIST = '/capital/submissions';
const OUTCOMES = '/capital/outcomes';
const MOST_BYTES = 65_000;
const MOST_ANSWERED = 1_000_000;
/** A test of `000000009` bounces within two minutes. */
const BOUNCES_MS = 150_000;

/**
 * EIN: answers in turn, and the state with its reason; `none`: the connection is cut.
 * @type {Record<string, [answers: (number | string)[], outcome?: string]>}
 */
const endings = {
  '000000000': [[202], 'completed'],
  '000000001': [[202], 'rejected duplicate_ein'],
  '000000002': [[202], 'rejected duplicate_email'],
  '000000003': [[202], 'undeliverable unknown_mailbox'],
  '000000004': [[202], 'rejected discarded'],
  '000000005': [[202], 'processing'],
  '000000006': [[202], 'rejected duplicate'],
  '000000007': [['none', 202], 'completed'],
  '000000008': [[202], 'processing'],
  '000000009': [[202], 'completed'],
  '000000400': [[400], 'not_accepted'],
  '000000403': [[403]],
  '000000408': [[408], 'not_accepted'],
  '000000422': [[422], 'not_accepted'],
  '000000423': [[422], 'not_accepted'],
  '000000429': [[429]],
  '000000430': [[429, 202], 'completed'],
  '000000500': [[500]],
  '000000501': [[500, 500, 202], 'completed'],
};
const retryAfter = { 429: /^([1-9]|[12]\d|30)$/, 500: /^5$/ };
/** What a proxy answers where the service cut the connection: repeated all the same. */
const ofProxy = [502, 503, 504];

const protocol = BASE_URL.startsWith('https:') ? https : http;

/** What came from outside, on one short line. */
const quoted = (value) => JSON.stringify(value ?? null).slice(0, 80);

/** `why`: why no whole answer came. `part` is sent of a body that never ends. */
function ask(path, { key = API_KEY, headers = {}, body, part, agent, seconds = 0 }) {
  const begun = performance.now();
  const answer = { status: 'none', headers: {}, json: {} };
  return new Promise((resolve) => {
    const outgoing = protocol.request(BASE_URL + path, {
      method: (body ?? part) === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${key}`, ...headers },
      agent,
      signal: AbortSignal.timeout((Number(ANSWER_SECONDS) + seconds) * 1_000),
    });
    const fail = ({ code, name }) => {
      const after = ((performance.now() - begun) / 1_000).toFixed(1);
      answer.why ??= `${code === 'ABORT_ERR' ? 'time-out' : (code ?? name)} after ${after} s`;
      outgoing.destroy();
      resolve(answer);
    };
    outgoing.on('error', fail);
    outgoing.on('upgrade', () => fail({ code: 'upgrade' }));
    outgoing.on('response', async (incoming) => {
      Object.assign(answer, { status: incoming.statusCode, headers: incoming.headers });
      try {
        let text = '';
        for await (const piece of incoming.setEncoding('utf8')) {
          text += piece;
          if (text.length > MOST_ANSWERED) break;
        }
        answer.json = Object(JSON.parse(text));
        if (part !== undefined) outgoing.destroy();
        resolve(answer);
      } catch (error) {
        fail(error);
      }
    });
    if (part === undefined) outgoing.end(body);
    else outgoing.write(part);
  });
}

/** What an answer lacks of the contract. */
function faultsOf({ status, headers, json, why }, expected, wanted = {}) {
  if (status !== expected)
    return [`answered ${status}${status === 'none' ? ` (${why})` : ''}, not ${expected}`];
  if (why !== undefined) return [`the body of the ${status} cannot be read: ${why}`];
  const faults = [];
  if (json.message === undefined && json.error === undefined) faults.push('the body was replaced');
  for (const [name, shape] of Object.entries({ 'x-request-id': /^req_\w+$/, ...wanted }))
    if (!shape.test(headers[name] ?? '')) faults.push(`${name}: ${quoted(headers[name])}`);
  return faults;
}

const test = { 'test-submission': /^true$/ };
const wantedOf = (status) => ({
  ...test,
  ...(retryAfter[status] && { 'retry-after': retryAfter[status] }),
  ...(status === 202 && { location: /\/capital\/ingest\/req_\w+$/ }),
});

async function certify(ein, answers, outcome, bytes = 0) {
  const key = randomUUID();
  const email = `${key}@example.com`;
  const body = JSON.stringify({ email, business_name: 'Certify', ein }).padEnd(bytes);
  const faults = [];
  let id;
  let found;
  const submit = () => ask(SUBMIT, { headers: { 'idempotency-key': `"${key}"` }, body });
  const isHeld = ({ status, headers }) =>
    ein === '000000430' && status === 429 && retryAfter[429].test(headers['retry-after'] ?? '');
  const wait429 = ({ headers }) => setTimeout(Number(headers['retry-after']) * 1_000 + 500);
  for (const expected of answers) {
    let answer = await submit();
    // A pod whose Redis is slow counts alone, so its half minute may begin later.
    if (expected === 202 && isHeld(answer)) answer = await wait429(answer).then(submit);
    // An earlier run began the half minute of 429.
    if (ein === '000000430' && answer.status === 202 && expected === 429) continue;
    if (expected === 'none' && (answer.status === 'none' || ofProxy.includes(answer.status))) {
      const { json } = await ask(`${LIST}?idempotency_key=${key}`, {});
      found = json.data?.submissions?.[0]?.request_id;
      if (found === undefined) faults.push('the list does not find the key');
      continue;
    }
    const replayed = found && { 'idempotent-replayed': /^true$/ };
    faults.push(...faultsOf(answer, expected, { ...wantedOf(expected), ...replayed }));
    if (answer.status !== expected) return faults;
    const { headers, json } = answer;
    id = headers['x-request-id'] ?? json.data?.request_id;
    if (json.data !== undefined && json.data?.request_id !== id)
      faults.push(`x-request-id: ${quoted(id)}, in the body: ${quoted(json.data?.request_id)}`);
    if (expected === 429 && isHeld(answer)) await wait429(answer);
  }
  if (found !== undefined && found !== id)
    faults.push(`the list finds ${quoted(found)} by the key, not ${quoted(id)}`);
  if (outcome === '' || !/^req_\w+$/.test(id)) return faults;
  const seconds = ein === '000000005' ? 0 : Number(WAIT_SECONDS);
  const wait = `wait=${seconds}`;
  const looked = await ask(`${SUBMIT}/${id}`, { headers: { prefer: wait }, seconds });
  const wanted = {
    ...test,
    'preference-applied': RegExp(`^${wait}$`),
    'cache-control': /^no-store$/,
  };
  faults.push(...faultsOf(looked, 200, wanted).map((fault) => `look-up: ${fault}`));
  if (looked.status !== 200 || looked.why !== undefined) return faults;
  const { request_id: of, state, reasons = [] } = looked.json.data ?? {};
  const reached = [state, ...reasons.map(({ code }) => code)].join(' ');
  if (of !== id) faults.push(`look-up: of ${quoted(of)}, not ${quoted(id)}`);
  if (reached !== outcome) faults.push(`look-up: ${quoted(reached)}, not ${outcome}`);
  return faults;
}

/** What the path does where no ending shows it. */
const paths = {
  largest: [
    `a body of ${MOST_BYTES} bytes: 202`,
    () => certify('000000000', [202], '', MOST_BYTES),
  ],
  early: [
    'an answer before the end of the body: 401',
    async () => {
      const headers = { 'content-length': '60000' };
      const answer = await ask(SUBMIT, { key: 'pik_test_unknown', headers, part: '{"half":' });
      return faultsOf(answer, 401);
    },
  ],
  outcomes: [
    'the feed: 000000009 completed, then undeliverable',
    async () => {
      // The clocks may differ.
      const since = new Date(Date.now() - 3_600_000).toISOString();
      const email = `${randomUUID()}@example.com`;
      const body = JSON.stringify({ email, business_name: 'Certify', ein: '000000009' });
      const submitted = await ask(SUBMIT, { body });
      const refused = faultsOf(submitted, 202, wantedOf(202));
      if (refused.length > 0) return refused;
      const id = submitted.headers['x-request-id'];
      const reached = [];
      const until = performance.now() + BOUNCES_MS;
      for (let cursor = ''; performance.now() < until && reached.length < 2;) {
        const seconds = Number(WAIT_SECONDS);
        const headers = { prefer: `wait=${seconds}` };
        const path = `${OUTCOMES}?since=${since}&cursor=${cursor}`;
        const answer = await ask(path, { headers, seconds });
        const faults = faultsOf(answer, 200, test);
        if (faults.length > 0) return faults;
        const { outcomes = [], next_cursor: next } = answer.json.data ?? {};
        if (!/^out_[\w-]+$/.test(next)) return [`next_cursor: ${quoted(next)}`];
        for (const { request_id: of, state } of outcomes)
          if (of === id && reached.at(-1) !== state) reached.push(state);
        cursor = next;
        if (seconds === 0 && outcomes.length === 0) await setTimeout(1_000);
      }
      const told = reached.join(', then ');
      return told === 'completed, then undeliverable' ? [] : [`told ${quoted(told)}`];
    },
  ],
  idle: [
    `a connection open while idle for ${WAIT_SECONDS} s`,
    async () => {
      const agent = new protocol.Agent({ keepAlive: true });
      const faults = faultsOf(await ask(LIST, { agent }), 200, test);
      if (faults.length > 0) return faults;
      await setTimeout(Number(WAIT_SECONDS) * 1_000);
      if (Object.values(agent.freeSockets).flat().length === 0) faults.push('it was closed');
      else faults.push(...faultsOf(await ask(LIST, { agent }), 200, test));
      agent.destroy();
      return faults;
    },
  ],
};

const chosen = process.argv.slice(2);
const all = [
  ...Object.entries(endings).map(([name, [answers, outcome = '']]) => ({
    name,
    told: `${answers.join(', ')} ${outcome}`,
    check: () => certify(name, answers, outcome),
  })),
  ...Object.entries(paths).map(([name, [told, check]]) => ({ name, told, check })),
];

const refusals = [
  [
    !/^https?:\/\/[^\s/?#@]+(\/[^\s?#]*)?\/api\/v1$/.test(BASE_URL) || !URL.canParse(BASE_URL),
    'BASE_URL must be a URL that ends in /api/v1',
  ],
  [!/^pik_test_[\w-]+$/.test(API_KEY), 'API_KEY must be a test key: pik_test_…'],
  [!/^([12]?\d|30)$/.test(WAIT_SECONDS), 'WAIT_SECONDS must be 0 to 30'],
  [!/^[1-9]\d?$/.test(ANSWER_SECONDS), 'ANSWER_SECONDS must be 1 to 99'],
  [
    chosen.some((name) => !all.some((row) => row.name === name)),
    `a ROW must be one of ${all.map(({ name }) => name).join(' ')}`,
  ],
].flatMap(([wrong, sentence]) => (wrong ? [sentence] : []));

async function run() {
  const rows = all.filter(({ name }) => chosen.length === 0 || chosen.includes(name));
  // All at once, and printed in their order.
  for (const row of rows) row.found = row.check().catch(() => ['an answer has another shape']);
  let differ = 0;
  for (const { name, told, found } of rows) {
    const faults = await found;
    differ += Math.min(faults.length, 1);
    const verdict = faults.length === 0 ? 'ok' : faults.join('; ');
    console.log(`${name.padEnd(9)}  ${told.padEnd(42)}  ${verdict}`);
  }
  console.log(`${differ} of ${rows.length} rows differ`);
  process.exitCode = differ === 0 ? 0 : 1;
}

if (refusals.length === 0) await run();
else {
  console.error(refusals.join('\n'));
  process.exitCode = 2;
}
