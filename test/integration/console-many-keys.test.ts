/** The console where partners have as many keys as the store takes. */
import { expect, test } from '@jest/globals';
import { KeyDocuments, KEYS_MAX, type StoredKey } from '../../internal/partner/key-document.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { hashApiKey } from '../../internal/partner/api-key.ts';
import { send } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const { world } = await worldOf();
/** The world stores keys of its own, too. */
const OF_THE_WORLD = 100;
const keys = Array.from({ length: KEYS_MAX - OF_THE_WORLD }, (_, index): StoredKey => {
  const partnerId = index % 4 === 0 ? 'largest' : `partner-${String(index).padStart(5, '0')}`;
  return {
    hash: hashApiKey(`pik_${index}`),
    partnerId,
    status: 'active',
    source: { namespace: 'partner-keys', name: `${partnerId}-${index}`, uid: String(index) },
    terms: {},
    updatedAt: clock.now(),
  } as unknown as StoredKey;
});
const documents = new KeyDocuments({ db: world.stores.db, clock });
await documents.acquire('test');
const version = (await documents.version())!;
await documents.replace(version, keys, { synced: true, ended: [], arrived: [] });
const desk = await world.start('console');

const rowsOf = (page: string): number => page.match(/<th scope="row"/g)?.length ?? 0;
const open = (path: string) => send(desk.url, { method: 'GET', path });
/** A page that was not read in its time is asked for again, as it says. */
const opened = (path: string) =>
  eventually(path, async () => {
    const page = await open(path);
    expect([200, 503]).toContain(page.status);
    return page.status === 200 && page;
  });

test('twenty at once get their page of partners and keys, and each has a bound', async () => {
  const paths = Array.from({ length: 20 }, (_, index) =>
    index % 2 === 0 ? '/partners' : '/partners/largest',
  );
  const pages = await Promise.all(paths.map(open));
  expect(pages.map(({ status }) => status)).toEqual(paths.map(() => 200));
  for (const { text } of pages) expect(rowsOf(text)).toBeLessThan(300);
});

test('all partners and keys are reached page by page', async () => {
  const reached = async (first: string, what: RegExp): Promise<Set<string>> => {
    const found = new Set<string>();
    let path: string | undefined = first;
    for (let page = 0; path !== undefined && page < KEYS_MAX / 100; page += 1) {
      const { text } = await opened(path);
      for (const [, name = ''] of text.matchAll(what)) found.add(name);
      path = /<a href="([^"]+)">Further (?:partners|keys)/
        .exec(text)?.[1]
        ?.replaceAll('&amp;', '&');
    }
    return found;
  };
  const some = await reached('/partners?from=partner-09', /href="\/partners\/(partner-\d+)"/g);
  expect(some.size).toBe(675);
  const ids = await reached('/partners/largest', /<th scope="row"[^>]*>([0-9a-f]{12})<\/th>/g);
  const theirs = keys.filter(({ partnerId }) => partnerId === 'largest');
  const missing = theirs.map(({ hash }) => hash.slice(0, 12)).filter((id) => !ids.has(id));
  expect(missing).toEqual([]);
  expect((await open('/partners?from=zzz')).text).toContain('No partner is at or after this name');
});

test('a change of the keys is seen at once', async () => {
  expect((await open('/partners/partner-09899')).text).not.toContain('No key of this partner');
  const now = (await documents.version())!;
  const rest = keys.filter(({ partnerId }) => partnerId !== 'partner-09899');
  await documents.replace(now, rest, { synced: true, ended: [], arrived: [] });
  expect((await open('/partners/partner-09899')).text).toContain('No key of this partner');
});
