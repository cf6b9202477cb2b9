/** `helm test`: the pods are well, and a submission of a test partner through the Service is completed. It changes nothing else. */
/* oxlint-disable node/no-process-env -- a program of its own, told by its pod */
import { lookup } from 'node:dns/promises';
import { randomInt } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { ask, submitTest, testCompleted } from './dist/internal/controller/sandbox-submission.js';

const {
  ADMIN_ADDRESSES,
  BASE_URL,
  PROBE_KEY_FILE,
  PROBE_MAIL_TO,
  EMAIL,
  OPERATOR,
  TIMEOUT_SECONDS,
} = process.env;
const service = { baseUrl: BASE_URL, setting: 'the Service' };
const startedAt = performance.now();
const POLL_MS = 100;
const CALL_TIMEOUT_MS = 10_000;
/** A pod that has just begun to serve, or ends, gets this long. */
const WELL_MS = 15_000;
const TIMEOUT_MS = Number(TIMEOUT_SECONDS) * 1_000;

const shown = (text) => console.log(`${Math.round(performance.now() - startedAt)} ms  ${text}`);
const pause = () => new Promise((resolve) => setTimeout(resolve, POLL_MS));

/** What `read` makes of the answers of all components' pods. */
async function ofPods(path, read) {
  const told = ADMIN_ADDRESSES.split(' ').map(async (address) => {
    const { hostname, port } = new URL(`http://${address}`);
    const pods = await lookup(hostname, { all: true });
    const answers = pods.map(async ({ address: pod, family }) => {
      const host = family === 6 ? `[${pod}]` : pod;
      const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
      return read(await fetch(`http://${host}:${port}${path}`, { signal }), address);
    });
    return (await Promise.all(answers)).flat();
  });
  return Promise.all(told);
}

/** What the pods of all components say of themselves and of the servers they need, each once. */
async function complaints() {
  const all = await ofPods('/readyz', async (response, address) => {
    const { faults, warnings = [] } = await response.json();
    return [...faults, ...warnings].map((text) => `${address}: ${text}`);
  }).catch(({ message, cause }) => [[`a pod does not answer: ${cause?.message ?? message}`]]);
  return [...new Set(all.flat())];
}

/** Fails with the sentences of the pods unless all of them are well within `WELL_MS`. */
async function requireWell() {
  const until = performance.now() + WELL_MS;
  for (;;) {
    const told = await complaints();
    if (told.length === 0) return shown('all pods are ready, without warnings');
    if (performance.now() > until) throw new Error(`not well:\n  ${told.join('\n  ')}`);
    await pause();
  }
}

async function refusesWithoutKey() {
  const { status, text } = await ask(service, '/capital/ingest', {
    method: 'POST',
    body: '{}',
  });
  if (status !== 401 || !text.includes('Unauthorized: API Key missing'))
    throw new Error(`not the contract's 401: ${status} ${text}`);
  shown('a request without a key is refused as the contract says');
}

/** Sends a submission and sees it through; a failure says where an operator finds more. */
async function sendOne() {
  const key = (await readFile(PROBE_KEY_FILE, 'utf8')).replace(/\r?\n$/, '');
  const target = { ...service, key };
  const id = await submitTest(target, { email: EMAIL.replace('@', `+${randomInt(1e9)}@`) });
  shown(`202 ${id}`);
  await testCompleted(target, id, TIMEOUT_MS).catch(async ({ message }) => {
    const told = await complaints();
    const more = `what became of it: ${OPERATOR} show ${id}`;
    throw new Error([message, ...told, more].join('\n  '));
  });
  shown('the whole way works: recorded, account made, e-mail composed');
}

/** The leading controller sends one e-mail each ten minutes, the first when it begins to lead. */
async function requireMail() {
  const until = performance.now() + TIMEOUT_MS;
  for (;;) {
    const told = await ofPods('/metrics', async (response) =>
      [...(await response.text()).matchAll(/^partner_ingest_probe_mail_success\S* (\d)$/gm)].map(
        ([, value]) => value,
      ),
    ).catch(() => []);
    if (told.flat().includes('1'))
      return shown('the relay took the last e-mail of the probe to probe.mailTo');
    if (told.flat().includes('0'))
      throw new Error(
        'the relay did not take the last e-mail of the probe: the log of the controller says why; the next goes out within ten minutes',
      );
    if (performance.now() > until)
      throw new Error('the controller that leads has sent no e-mail to probe.mailTo yet');
    await pause();
  }
}

try {
  await requireWell();
  await refusesWithoutKey();
  if (PROBE_KEY_FILE === undefined)
    shown('no submission was sent: give tests.existingSecret with the key of a test partner');
  else await sendOne();
  if (PROBE_MAIL_TO) await requireMail();
  else shown('probe.mailTo is empty: no e-mail of the probe goes through the relay');
} catch ({ message }) {
  console.error(message);
  process.exitCode = 1;
}
