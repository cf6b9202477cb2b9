/** `helm test`: sends one application through the Service and waits until its e-mail has been handed over. */
/* oxlint-disable node/no-process-env -- a program of its own, told by its pod */
import { readFile } from 'node:fs/promises';
import { MongoClient } from 'mongodb';

const { BASE_URL, API_KEY_FILE, EMAIL, MONGODB_DATABASE, MONGODB_URI_FILE, TIMEOUT_SECONDS } = process.env;
const startedAt = performance.now();
const deadline = AbortSignal.timeout(Number(TIMEOUT_SECONDS) * 1_000);
const POLL_MS = 100;

const shown = (text) => console.log(`${Math.round(performance.now() - startedAt)} ms  ${text}`);
const readSecret = async (file) => (await readFile(file, 'utf8')).replace(/\r?\n$/, '');

/** POSTs `body`; fails unless the answer is `status` with JSON. */
async function post(headers, body, status) {
  const response = await fetch(`${BASE_URL}/capital/ingest`, { method: 'POST', headers, body, signal: deadline });
  const text = await response.text();
  if (response.status !== status) throw new Error(`expected ${status}, got ${response.status}: ${text}`);
  return JSON.parse(text);
}

const refused = await post({}, '{}', 401);
if (refused.error !== 'Unauthorized: API Key missing') throw new Error(`not the contract's 401: ${refused.error}`);
shown('a request without a key is refused as the contract says');

if (API_KEY_FILE === undefined) {
  shown('no application was sent: give tests.existingSecret with a key of a partner kept for tests');
} else {
  // A new applicant each time: the last nine digits of the clock's milliseconds come back only after 11 days.
  const unique = String(Date.now()).slice(-9);
  const application = {
    email: EMAIL.replace('@', `+${unique}@`),
    business_name: 'Helm Test Ltd',
    ein: unique,
  };
  const headers = { authorization: `Bearer ${await readSecret(API_KEY_FILE)}`, 'content-type': 'application/json' };
  const accepted = await post(headers, JSON.stringify(application), 202);
  const requestId = accepted.data.request_id;
  shown(`202 ${requestId}`);

  const client = new MongoClient(await readSecret(MONGODB_URI_FILE), { serverSelectionTimeoutMS: 10_000 });
  try {
    const requests = client.db(MONGODB_DATABASE).collection('requests');
    for (let state; state !== 'completed';) {
      const record = await requests.findOne({ _id: requestId }, { projection: { state: 1, reasons: 1 } });
      if (record === null) throw new Error('answered 202, but there is no record');
      if (record.state !== state) shown(`record: ${record.state}`);
      state = record.state;
      if (!['recorded', 'account_created', 'completed'].includes(state)) {
        throw new Error(`ended ${state}: ${JSON.stringify(record.reasons)}`);
      }
      deadline.throwIfAborted();
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  } finally {
    await client.close();
  }
  shown('the whole way works: recorded, account made, e-mail handed over');
}
