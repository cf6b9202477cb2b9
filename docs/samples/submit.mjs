import { readFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';

const [file, key] = process.argv.slice(2);
const body = await readFile(file);

/** One try; its status is 0 where no answer came. */
async function once() {
  try {
    const answer = await fetch(`${process.env.BASE_URL}/capital/ingest`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${process.env.API_KEY}`,
        'content-type': 'application/json',
        'idempotency-key': `"${key}"`,
      },
      body,
      signal: AbortSignal.timeout(15_000),
    });
    return { status: answer.status, headers: answer.headers, said: await answer.text() };
  } catch (lost) {
    return { status: 0, headers: new Headers(), said: String(lost.cause ?? lost) };
  }
}

process.exitCode = 2;
for (let attempt = 0; attempt < 8 && process.exitCode === 2; attempt += 1) {
  const { status, headers, said } = await once();
  if (status === 202) {
    console.log(headers.get('x-request-id'));
    process.exitCode = 0;
  } else {
    console.error(status || 'no answer', said);
    if (![0, 408, 429].includes(status) && status < 500) process.exitCode = 1;
    const wait = Number(headers.get('retry-after')) || Math.min(2 ** attempt, 60);
    if (process.exitCode === 2) await setTimeout((wait + Math.random()) * 1_000);
  }
}
