/** One controller leads, another takes over: after a clean end, a kill and a freeze, and with the Lease deleted. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_KEYS, type PartnerKey } from '../../internal/partner/key-store.ts';
import { describeWithApi } from '../support/cluster.ts';
import { openKeysWorld, type KeysWorld } from '../support/keys-world.ts';
import { eventually } from '../support/wait.ts';

/** What the design promises after a leader died. */
const TAKE_OVER_MS = 20_000;
/** After a clean end nobody waits for the Lease to expire. */
const AT_ONCE_MS = 5_000;

describeWithApi('leadership', () => {
  let own: KeysWorld;

  beforeAll(async () => {
    own = await openKeysWorld();
  }, 120_000);
  afterAll(() => own.close(), 60_000);

  const start = async (name: string): Promise<ServiceProcess> =>
    own.world.spawn('controller', { ...(await own.settings()), POD_NAME: name });
  const leads = async (process: ServiceProcess): Promise<boolean> =>
    (await own.world.metric(process, 'partner_ingest_leader')) === 1;
  /** Writes one more key and waits until somebody has brought it into force; gives how long that took. */
  const newKeyWorks = async (): Promise<number> => {
    const key = newApiKey();
    const name = `p-${key.slice(-6).toLowerCase()}`;
    await own.apply(name, { partner: name, keys: [key] });
    return own.becomes(key, 202, TAKE_OVER_MS);
  };
  const allKeys = (): Promise<PartnerKey[]> =>
    own.world.stores.db
      .collection<PartnerKey>(PARTNER_KEYS)
      .find({}, { sort: { _id: 1 } })
      .toArray();

  test('of two, one leads and both are ready; after a SIGTERM the other leads at once', async () => {
    const one = await start('one');
    const other = await start('other');
    expect([await leads(one), await leads(other)]).toEqual([true, false]);
    const before = await own.lease();
    expect(before.holder).toMatch(/^one_/);
    await newKeyWorks();

    const stopped = performance.now();
    expect(await one.stop()).toBe(0);
    await eventually('the other to lead', () => leads(other), AT_ONCE_MS);
    await newKeyWorks();
    console.log(`take-over after SIGTERM: first new key in force after ${Math.round(performance.now() - stopped)} ms`);
    const after = await own.lease();
    expect(after.holder).toMatch(/^other_/);
    expect(after.transitions).toBe(before.transitions + 1);
    expect(new Set((await allKeys()).map(({ term }) => term))).toEqual(new Set([after.transitions]));
    await other.stop();
    expect((await own.lease()).holder).toBe('');
  }, 90_000);

  test('a leader killed: the standby brings keys into force within 20 s', async () => {
    const one = await start('one');
    const other = await start('other');
    one.child.kill('SIGKILL');
    const took = await newKeyWorks();
    console.log(`take-over after SIGKILL: first new key in force after ${Math.round(took)} ms`);
    expect(await leads(other)).toBe(true);
    await other.stop();
  }, 90_000);

  test('a leader frozen and thawed changes nothing, and stands by from then on', async () => {
    const [revoked, turnedOff] = [newApiKey(), newApiKey()];
    await own.apply('revoked', { partner: 'revoked', keys: [revoked] });
    await own.apply('turned-off', { partner: 'turned-off', keys: [turnedOff] });
    const one = await start('one');
    const other = await start('other');
    await own.becomes(revoked, 202);
    await own.becomes(turnedOff, 202);

    one.child.kill('SIGSTOP');
    await own.remove('revoked');
    await own.apply('turned-off', { partner: 'turned-off', keys: [turnedOff], status: 'inactive' });
    await own.becomes(revoked, 401, TAKE_OVER_MS);
    await own.becomes(turnedOff, 403);
    expect(await leads(other)).toBe(true);
    const before = await allKeys();
    const { transitions, holder } = await own.lease();

    one.child.kill('SIGCONT');
    await eventually('the thawed one to notice', () => one.lines.some((line) => line.includes('"no longer leading"')));
    await eventually('it to stand by', async () => (await fetch(`${one.adminUrl}/readyz`)).ok);
    expect(await leads(one)).toBe(false);
    expect(await leads(other)).toBe(true);
    expect(await own.lease()).toMatchObject({ transitions, holder });
    expect((await allKeys()).map(({ lastUsedAt: _used, ...key }) => key)).toEqual(
      before.map(({ lastUsedAt: _used, ...key }) => key),
    );

    // And it takes over again when the other goes.
    await other.stop();
    await newKeyWorks();
    expect(await leads(one)).toBe(true);
    await one.stop();
  }, 120_000);

  test('a Lease that somebody deleted: terms go on where they were', async () => {
    const one = await start('one');
    const before = await own.lease();
    await own.cluster.leases.deleteNamespacedLease({ namespace: own.home, name: 'partner-ingest-controller' });
    await eventually('a new Lease', async () => (await own.lease()).transitions > before.transitions, TAKE_OVER_MS);
    await newKeyWorks();
    expect(new Set((await allKeys()).map(({ term }) => term))).toEqual(new Set([(await own.lease()).transitions]));
    await one.stop();
  }, 60_000);
});
