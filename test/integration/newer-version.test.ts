/** A process that meets what a newer version stored is not ready, and says why. */
import { expect, test } from '@jest/globals';
import type { Document } from 'mongodb';
import { PARTNER_HOLDS, PARTNERS_DISABLED } from '../../internal/partner/flags.ts';
import { PARTNER_KEYS } from '../../internal/partner/key-document.ts';
import { startService, type ServiceName } from '../../deploy/local/processes.ts';
import { send } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const KEYS = 'a newer version stored the partner keys in a form that this one does not know';
const FLAGS = "a newer version stored operators' flags of partners in a form";
const NEWER = { $set: { schema: 2 } };

const { world } = await worldOf();

const store = (collection: string, _id: string, update: Document): Promise<unknown> =>
  world.stores.db
    .collection<{ _id: string }>(collection)
    .updateOne({ _id }, update, { upsert: true });
const says = (one: { readonly adminUrl: string }, words: string): Promise<unknown> =>
  eventually(words, async () => {
    const answer = await fetch(`${one.adminUrl}/readyz`);
    return answer.status === 503 && (await answer.text()).includes(words);
  });

test.each<[ServiceName, string, string, string]>([
  ['ingest', PARTNERS_DISABLED, 'acme', FLAGS],
  ['processor', PARTNER_HOLDS, 'acme', FLAGS],
  ['ingest', PARTNER_KEYS, 'keys', KEYS],
  ['controller', PARTNER_KEYS, 'keys', KEYS],
])('%s, of %s', async (name, collection, id, words) => {
  const running = await world.start(name);
  await store(collection, id, { $inc: { version: 1 }, ...NEWER });
  if (name !== 'controller') await says(running, words);
  const started = await startService(name, { ...world.environment, LOG_LEVEL: 'info' });
  try {
    await says(started, words);
    // Ingest goes on with what it has in memory.
    if (name === 'ingest') expect((await send(running.url, { key: world.key })).status).toBe(400);
    await store(collection, id, { $unset: { schema: true } });
    await started.ready();
  } finally {
    await store(collection, id, { $unset: { schema: true } });
    await started.stop();
    await running.close();
  }
});
