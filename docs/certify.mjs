/**
 * Runs every ending of a test key (contract.md) and prints what the network path changes. Needs only
 * Node: `BASE_URL=https://…/api/v1 API_KEY=pik_test_… node certify.mjs`. Ends with 1 if a row differs.
 * `WAIT_SECONDS` (30): how long the longest answer is waited for.
 */
/* oxlint-disable node/no-process-env -- a program of its own, for partners */
import { randomUUID } from 'node:crypto';

const { BASE_URL = '', API_KEY = '', WAIT_SECONDS = '30' } = process.env;
const SUBMIT = '/capital/ingest';
const LIST = '/capital/submissions';
const ANSWER_MS = 45_000;

/** EIN: answers in turn, and the state with its reason; `none`: the connection is cut. */
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
  '000000430': [[429]],
  '000000500': [[500]],
  '000000501': [[500, 500, 202], 'completed'],
};
const retryAfter = { 429: /^([1-9]|[12]\d|30)$/, 500: /^5$/ };

async function ask(path, headers, body) {
  try {
    const answer = await fetch(BASE_URL + path, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${API_KEY}`, ...headers },
      body,
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    const text = await answer.text();
    const json = answer.headers.get('content-type')?.startsWith('application/json');
    return { status: answer.status, headers: answer.headers, json: json ? JSON.parse(text) : {} };
  } catch {
    return { status: 'none', headers: new Headers(), json: {} };
  }
}

/** What an answer lacks of the contract. */
function faultsOf({ status, headers, json }, expected) {
  if (status !== expected) return [`answered ${status}, not ${expected}`];
  if (status === 'none') return [];
  const faults = [];
  if (json.message === undefined && json.error === undefined) faults.push('the body was replaced');
  const wanted = { 'x-request-id': /^req_/, 'test-submission': /^true$/ };
  if (retryAfter[status]) wanted['retry-after'] = retryAfter[status];
  if (status === 202) wanted.location = /capital\/ingest\/req_/;
  for (const [name, shape] of Object.entries(wanted))
    if (!shape.test(headers.get(name) ?? '')) faults.push(`${name}: ${headers.get(name)}`);
  return faults;
}

async function certify(ein, [answers, outcome]) {
  const key = randomUUID();
  const email = `${key}@example.com`;
  const body = JSON.stringify({ email, business_name: 'Certify', ein });
  const faults = [];
  let id;
  for (const expected of answers) {
    const answer = await ask(SUBMIT, { 'idempotency-key': `"${key}"` }, body);
    faults.push(...faultsOf(answer, expected));
    id = answer.headers.get('x-request-id') ?? id;
    if (expected === 'none') {
      const { json } = await ask(`${LIST}?idempotency_key=${key}`, {});
      if (json.data?.submissions?.length !== 1) faults.push('the list does not find its key');
    }
  }
  if (outcome === undefined) return faults;
  const seconds = outcome === 'processing' && ein === '000000005' ? '0' : WAIT_SECONDS;
  const looked = await ask(`${SUBMIT}/${id}`, { prefer: `wait=${seconds}` });
  if (looked.status !== 200) return [...faults, `the look-up was answered ${looked.status}`];
  if (looked.headers.get('preference-applied') !== `wait=${seconds}`)
    faults.push(`preference-applied: ${looked.headers.get('preference-applied')}`);
  if (looked.headers.get('cache-control') !== 'no-store')
    faults.push(`cache-control: ${looked.headers.get('cache-control')}`);
  const { state, reasons = [] } = looked.json.data ?? {};
  const found = [state, ...reasons.map(({ code }) => code)].join(' ');
  if (found !== outcome) faults.push(`${found}, not ${outcome}`);
  return faults;
}

let differs = false;
for (const [ein, ending] of Object.entries(endings)) {
  const faults = await certify(ein, ending);
  differs ||= faults.length > 0;
  const told = [ending[0].join(', '), ending[1] ?? ''].join(' ').padEnd(36);
  console.log(`${ein}  ${told}  ${faults.length === 0 ? 'ok' : faults.join('; ')}`);
}
process.exitCode = differs ? 1 : 0;
