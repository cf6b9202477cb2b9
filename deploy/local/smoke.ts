/**
 * `make smoke`: one application through the running system, each step shown with its time, until
 * the e-mail is there.
 */
import { styleText } from 'node:util';
import type { ShownMail } from './maildev.ts';
import { readRunState } from './run.ts';
import { messageOf } from './stores/wait.ts';

const TIMEOUT_MS = 30_000;

async function main(): Promise<number> {
  const state = await readRunState();
  if (state === undefined) {
    console.error(
      'Nothing is running here: start it with "make run" in another terminal, then try again.',
    );
    return 1;
  }
  const startedAt = performance.now();
  const shown = (step: string, detail: string): void => {
    const milliseconds = `${Math.round(performance.now() - startedAt)} ms`.padStart(8);
    console.log(
      `${styleText('green', '✓')} ${step.padEnd(18)} ${styleText('dim', milliseconds)}  ${detail}`,
    );
  };

  const unique = String(Date.now()).slice(-9);
  const email = `smoke-${unique}@example.com`;
  const response = await fetch(`${state.baseUrl}/capital/ingest`, {
    method: 'POST',
    headers: { authorization: `Bearer ${state.apiKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ email, business_name: 'Smoke Test Ltd', ein: unique }),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const text = await response.text();
  if (response.status !== 202) throw new Error(`expected 202, got ${response.status}: ${text}`);
  const requestId = (JSON.parse(text) as { data: { request_id: string } }).data.request_id;
  shown('accepted', `202 ${requestId}`);

  const looked = await fetch(`${state.baseUrl}/capital/ingest/${requestId}`, {
    headers: { authorization: `Bearer ${state.apiKey}`, prefer: 'wait=30' },
    signal: AbortSignal.timeout(2 * TIMEOUT_MS),
  });
  const outcome = await looked.text();
  if (!outcome.includes('"state":"completed"')) throw new Error(`not completed: ${outcome}`);
  shown('outcome', 'state: completed');

  const listed = await fetch(`${state.mailUrl}/api/email`, {
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const mails = ((await listed.json()) as ShownMail[]).filter(({ envelope }) =>
    envelope.to.some(({ address }) => address === email),
  );
  const [mail, ...more] = mails;
  if (mail === undefined || more.length > 0)
    throw new Error(`expected one e-mail, found ${mails.length}`);
  shown('e-mail', `"${mail.subject}"`);
  shown(
    'activation link',
    /https?:\/\/\S+token=\S+/.exec(mail.text)?.[0] ?? styleText('red', 'none'),
  );
  console.log(
    `\n${styleText('green', 'The whole way works.')} Read the mail at ${styleText('cyan', state.mailUrl)}`,
  );
  return 0;
}

try {
  process.exitCode = await main();
} catch (error) {
  console.error(`${styleText('red', '✗')} ${messageOf(error)}`);
  process.exitCode = 1;
}
