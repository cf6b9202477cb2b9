import { readFile, rename, writeFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';

const file = process.argv[2];
let cursor = await readFile(file, 'utf8').catch(() => '');
for (;;) {
  const answer = await fetch(`${process.env.BASE_URL}/capital/outcomes?cursor=${cursor}`, {
    headers: { authorization: `Bearer ${process.env.API_KEY}`, prefer: 'wait=30' },
    signal: AbortSignal.timeout(45_000),
  }).catch(() => undefined);
  const page = await answer?.json().catch(() => undefined);
  if (answer?.ok && page) {
    for (const { request_id, state } of page.data.outcomes) console.log(request_id, state);
    cursor = page.data.next_cursor;
    await writeFile(`${file}.new`, cursor);
    await rename(`${file}.new`, file);
  } else if (answer && answer.status < 500 && ![200, 408, 429].includes(answer.status)) {
    throw new Error(`${answer.status} ${page?.error}`);
  } else await setTimeout(5_000);
}
