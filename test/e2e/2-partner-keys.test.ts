/**
 * The partner team's work: keys come into force and out of it by `kubectl apply`, also under load.
 */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { outcomeWords, startRun, type LoadRun } from './load-run.ts';
import { note, spread } from './measured.ts';
import { openWorld, step, type World } from './world.ts';

const CHANGES = 55;
/** Ten times the two seconds that are usual: a bound against a hang. The times are printed. */
const AT_MOST_MS = 20_000;
const LOAD_MS = 4_000;

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());

step(
  `a key comes into force by \`kubectl apply\`, and the one it replaces goes out of it (${CHANGES} changes)`,
  async () => {
    const [firsts, everywhere, revoked, applies]: [number[], number[], number[], number[]] = [
      [],
      [],
      [],
      [],
    ];
    let before: string | undefined;
    for (let change = 0; change < CHANGES; change += 1) {
      const key = newApiKey();
      const startedAt = performance.now();
      await world.applyPartner('changing', [key]);
      // From the moment the command is back; what it took itself is given beside it.
      applies.push(performance.now() - startedAt);
      const [added, removed] = await Promise.all([
        world.answers(key, 202, AT_MOST_MS),
        before === undefined ? undefined : world.answers(before, 401, AT_MOST_MS),
      ]);
      firsts.push(added.first);
      everywhere.push(added.everywhere);
      if (removed !== undefined) revoked.push(removed.everywhere);
      before = key;
    }
    note('`kubectl apply` of a key back → first 202', spread(firsts));
    note('… → 202 at every ingest pod', spread(everywhere));
    note('… → the key it replaced is 401 at every pod', spread(revoked));
    note('`kubectl apply` itself', spread(applies));
  },
  240_000,
);

step(
  'a rotation under load, as docs/install.md says, fails no request',
  async () => {
    const run: LoadRun = await startRun(world, 'rotation', 1);
    try {
      run.phase('rotation');
      const [old, next] = [run.key, newApiKey()];
      await pause(LOAD_MS / 2);
      const patch = [
        'patch',
        'secret',
        'partner-load-rotation',
        '--namespace',
        world.release.keysNamespace,
      ];
      await world.kubectl.run([
        ...patch,
        '--patch',
        JSON.stringify({ stringData: { 'key-2': next } }),
      ]);
      await world.answers(next, 202);
      run.key = next;
      await pause(LOAD_MS);
      await world.kubectl.run([
        ...patch,
        '--type=json',
        '--patch',
        '[{"op":"remove","path":"/data/key-1"}]',
      ]);
      await world.answers(old, 401);
      await pause(LOAD_MS);
      const { violations } = await run.finish();
      const outcome = await run.outcome('rotation');
      note('requests in a rotation of keys', outcomeWords(outcome));
      const { broken, early500, requests } = outcome;
      expect({ broken, early500, violations }).toEqual({
        broken: [],
        early500: [],
        violations: [],
      });
      expect(requests).toBeGreaterThan(100);
    } finally {
      await run.stop();
    }
  },
  240_000,
);

step(
  'a partner that is switched off is answered 403, switched on again 202, and 401 when its Secret is gone',
  async () => {
    const key = newApiKey();
    await world.applyPartner('switched', [key]);
    await world.answers(key, 202);
    const times: string[] = [];
    const changed = async (
      words: string,
      change: () => Promise<void>,
      status: number,
    ): Promise<void> => {
      await change();
      times.push(
        `${words} ${status} after ${Math.round((await world.answers(key, status, AT_MOST_MS)).everywhere)} ms`,
      );
    };
    await changed('inactive', () => world.applyPartner('switched', [key], 'inactive'), 403);
    await changed('active', () => world.applyPartner('switched', [key], 'active'), 202);
    await changed('deleted', () => world.deletePartner('switched'), 401);
    note('partner switched', times.join(', '));
  },
  90_000,
);
