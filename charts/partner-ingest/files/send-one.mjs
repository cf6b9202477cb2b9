/** `helm test`: sends one application through the Service, waits until its e-mail has been handed over, and removes both. */
/* oxlint-disable node/no-process-env -- a program of its own, told by its pod */
import { lookup } from 'node:dns/promises';
import { randomInt } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { MongoClient } from 'mongodb';

const {
  ADMIN_ADDRESSES,
  BASE_URL,
  API_KEY_FILE,
  EMAIL,
  MONGODB_DATABASE,
  MONGODB_URI_FILE,
  TIMEOUT_SECONDS,
} = process.env;
const startedAt = performance.now();
const deadline = AbortSignal.timeout(Number(TIMEOUT_SECONDS) * 1_000);
const POLL_MS = 100;
/** A pod that has just begun to serve, or ends, gets this long. */
const WELL_MS = 15_000;
/** A refused request is written after its answer, and not at all under load. */
const REFUSED_WRITTEN_MS = 5_000;
const SEVEN_DIGITS = 10_000_000;

const shown = (text) => console.log(`${Math.round(performance.now() - startedAt)} ms  ${text}`);
const readSecret = async (file) => (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
const pause = () => new Promise((resolve) => setTimeout(resolve, POLL_MS));

/** What the pods of all components say of themselves and of the servers they need, each once. */
async function complaints() {
  const told = ADMIN_ADDRESSES.split(' ').map(async (address) => {
    const { hostname, port } = new URL(`http://${address}`);
    const pods = await lookup(hostname, { all: true });
    const answers = pods.map(async ({ address: pod, family }) => {
      const host = family === 6 ? `[${pod}]` : pod;
      const response = await fetch(`http://${host}:${port}/readyz`, { signal: deadline });
      const { faults, warnings = [] } = await response.json();
      return [...faults, ...warnings].map((text) => `${address}: ${text}`);
    });
    return (await Promise.all(answers)).flat();
  });
  return [...new Set((await Promise.all(told)).flat())];
}

/** Fails with the sentences of the pods unless all of them are well within `WELL_MS`. */
async function requireWell() {
  const until = performance.now() + WELL_MS;
  for (;;) {
    const told = await complaints().catch((error) => [`a pod does not answer: ${error.message}`]);
    if (told.length === 0) return shown('all pods are ready, without warnings');
    if (performance.now() > until) throw new Error(`not well:\n  ${told.join('\n  ')}`);
    await pause();
  }
}

/** POSTs `body`; fails unless the answer is `status` with JSON. Gives the answer and the id of its record. */
async function post(headers, body, status) {
  const response = await fetch(`${BASE_URL}/capital/ingest`, {
    method: 'POST',
    headers,
    body,
    signal: deadline,
  });
  const text = await response.text();
  if (response.status !== status)
    throw new Error(`expected ${status}, got ${response.status}: ${text}`);
  return { answer: JSON.parse(text), id: response.headers.get('x-request-id') };
}

/** Waits until the record is completed; fails with its own last error when it ends otherwise, or not in time. */
async function follow(requests, requestId) {
  for (let state; state !== 'completed'; await pause()) {
    const record = await requests.findOne(
      { _id: requestId },
      { projection: { state: 1, reasons: 1, lastError: 1 } },
    );
    if (record === null) throw new Error('answered 202, but there is no record');
    if (record.state !== state) shown(`record: ${record.state}`);
    state = record.state;
    if (!['recorded', 'account_created', 'completed'].includes(state)) {
      throw new Error(`ended ${state}: ${record.lastError ?? JSON.stringify(record.reasons)}`);
    }
    if (deadline.aborted && state !== 'completed') {
      const why = record.lastError ?? 'no attempt has failed, so no processor has taken it';
      throw new Error(`still ${state} after ${TIMEOUT_SECONDS} s: ${why}`);
    }
  }
}

/** Sends an application of the test's partner and sees it through; gives its id. A failed one stays, to be looked at. */
async function sendOne(requests) {
  // No business has an EIN of the prefix 00.
  const unique = String(randomInt(SEVEN_DIGITS)).padStart(7, '0');
  const application = {
    email: EMAIL.replace('@', `+${unique}@`),
    business_name: 'Helm Test Ltd',
    ein: `00${unique}`,
  };
  const headers = {
    authorization: `Bearer ${await readSecret(API_KEY_FILE)}`,
    'content-type': 'application/json',
  };
  const { answer } = await post(headers, JSON.stringify(application), 202);
  const requestId = answer.data.request_id;
  shown(`202 ${requestId}`);
  await follow(requests, requestId);
  shown('the whole way works: recorded, account made, e-mail handed over');
  return requestId;
}

await requireWell();
const refused = await post({}, '{}', 401);
if (refused.answer.error !== 'Unauthorized: API Key missing') {
  throw new Error(`not the contract's 401: ${refused.answer.error}`);
}
shown('a request without a key is refused as the contract says');

const client = new MongoClient(await readSecret(MONGODB_URI_FILE), {
  serverSelectionTimeoutMS: 10_000,
});
try {
  const database = client.db(MONGODB_DATABASE);
  const requests = database.collection('requests');
  if (API_KEY_FILE === undefined) {
    shown(
      'no application was sent: give tests.existingSecret with a key of a partner kept for tests',
    );
  } else {
    const requestId = await sendOne(requests);
    await database.collection('accounts').deleteOne({ requestId });
    await requests.deleteOne({ _id: requestId });
  }
  const until = performance.now() + REFUSED_WRITTEN_MS;
  while (
    (await requests.deleteOne({ _id: refused.id })).deletedCount === 0 &&
    performance.now() < until
  )
    await pause();
  shown('the test removed what it made');
} finally {
  await client.close();
}
