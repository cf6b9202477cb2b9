/** `make record WHAT=session`: records docs/session.md, a real terminal session of the operator's command on a real run. */
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { format } from 'prettier';
import { PARKED_AT_MOST_MS } from '../internal/processor/limits.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../internal/submission/submission.ts';
import { cliOf } from '../test/support/cli.ts';
import { openOwnWorld, submit } from '../test/support/processing.ts';
import { eventually } from '../test/support/wait.ts';

const FILE = fileURLToPath(new URL('../docs/session.md', import.meta.url));

const own = await openOwnWorld();
try {
  const { world } = own;
  const ingest = await world.start('ingest');
  await world.start('processor');
  const cli = cliOf({ environment: { ...world.environment, USER: 'jane' } });
  const parts: string[] = [
    '# A session',
    '',
    '<!-- Recorded by `make record WHAT=session` from a real run. Do not edit. -->',
    '',
    'Real output of `partner-ingest` on a real run, plain as in a pipe; on a terminal it has colours.',
  ];
  const tell = (title: string, text: string): void => void parts.push('', `## ${title}`, '', text);
  const run = async (...words: string[]): Promise<void> => {
    const { code, stdout, stderr } = await cli(...words);
    const line = words.map((word) => (/[^\w@.:/-]/.test(word) ? `'${word}'` : word)).join(' ');
    const exit = code === 0 ? '' : `[exit code ${code}]\n`;
    parts.push('', '```text', `$ partner-ingest ${line}\n${stdout}${stderr}${exit}`.trimEnd(), '```');
  };

  const ada = { email: 'ada@example.com', business_name: 'Ada Ltd', ein: '123456789' };
  const completed = await submit(world, ingest, ada);
  await world.recordIn('completed', completed);
  tell('Completed', 'A partner asks what became of a request.');
  await run('show', completed);

  world.mail.setFault({ at: 'rcpt', answer: { code: 451, message: '4.3.0 try again later' } });
  const failing = await submit(world, ingest, {
    email: 'eve@example.org',
    business_name: 'Eve & Co',
    ein: '987654321',
  });
  await eventually('a failed attempt', async () => (await world.record(failing))?.lastError !== undefined);
  // Its three days of attempts are over sooner here.
  const requests = world.stores.db.collection<SubmissionRecord>(SUBMISSIONS);
  await requests.updateOne({ _id: failing }, { $set: { stateAt: new Date(Date.now() - PARKED_AT_MOST_MS) } });
  await cli('retry', failing);
  await world.recordIn('dead_lettered', failing, 30_000);
  tell(
    'Dead-lettered',
    'The relay refused for three days (shortened for this recording by a first `retry`); an alert rang.',
  );
  await run('show', failing);

  world.mail.setFault(undefined);
  tell('Retried', 'The relay works again. First what would happen, then for real.');
  await run('retry', '--state', 'dead_lettered', '--since', '24h');
  await run('retry', failing, '--why', 'relay mended, ticket 4711');
  await world.recordIn('completed', failing, 30_000);

  tell('A mistyped address', 'Nothing changes without `--yes`; the old link is void from then on.');
  await run('account', 'correct-email', completed, 'ada.l@example.com', '--yes', '--why', 'ticket 4712');
  await world.mail.waitForMail((mail) => mail.to.includes('ada.l@example.com'), 30_000);
  await world.recordIn('completed', completed, 30_000);

  tell('Mistakes', 'One line and an exit code each.');
  await run('show', 'req_01arz3ndektsv4rrffq69g5fav');
  await run('find', '--state', 'dead-lettered');
  await run('retry', completed);

  await writeFile(FILE, await format(`${parts.join('\n')}\n`, { parser: 'markdown', printWidth: 120 }));
  console.log('wrote docs/session.md');
} finally {
  await own.close();
}
