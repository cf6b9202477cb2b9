/** One controller leads, another takes over: after a clean end, a kill and a freeze, and with the Lease deleted. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_KEYS, type PartnerKey } from '../../internal/partner/key-store.ts';
import { openKeysWorld, type KeysWorld } from '../support/keys-world.ts';
import { HANG_MS, eventually } from '../support/wait.ts';

describe('leadership', () => {
  let own: KeysWorld;

  beforeAll(async () => {
    own = await openKeysWorld();
  });
  afterAll(() => own.close());
  const started: ServiceProcess[] = [];
  afterEach(async () => {
    for (const one of started.splice(0)) {
      one.child.kill('SIGCONT');
      await one.stop();
    }
  });

  const start = async (name: string): Promise<ServiceProcess> => {
    const one = await own.world.spawn('controller', { ...(await own.settings()), POD_NAME: name });
    started.push(one);
    return one;
  };
  const leads = async (process: ServiceProcess): Promise<boolean> =>
    (await own.world.metric(process, 'partner_ingest_leader')) === 1;
  /** Writes one more key and waits until somebody has brought it into force; gives how long that took. */
  const newKeyWorks = async (): Promise<number> => {
    const key = newApiKey();
    const name = `p-${key.slice(-6).toLowerCase()}`;
    await own.apply(name, { partner: name, keys: [key] });
    return own.becomes(key, 202, HANG_MS);
  };
  const allKeys = (): Promise<PartnerKey[]> =>
    own.world.stores.db
      .collection<PartnerKey>(PARTNER_KEYS)
      .find({}, { sort: { _id: 1 } })
      .toArray();

  test('of two, one leads and both are ready; after a SIGTERM the other leads', async () => {
    const one = await start('one');
    const other = await start('other');
    expect([await leads(one), await leads(other)]).toEqual([true, false]);
    const before = await own.lease();
    expect(before.holder).toMatch(/^one_/);
    await newKeyWorks();

    const stopped = performance.now();
    expect(await one.stop()).toBe(0);
    // It gave the Lease back, so that nobody waits for it to expire.
    expect((await own.lease()).holder).not.toMatch(/^one_/);
    await eventually('the other to lead', () => leads(other));
    await newKeyWorks();
    console.log(`take-over after SIGTERM: first new key in force after ${Math.round(performance.now() - stopped)} ms`);
    const after = await own.lease();
    expect(after.holder).toMatch(/^other_/);
    expect(after.transitions).toBe(before.transitions + 1);
    expect(new Set((await allKeys()).map(({ term }) => term))).toEqual(new Set([after.transitions]));
    await other.stop();
    expect((await own.lease()).holder).toBe('');
  });

  test('a leader killed: the standby brings keys into force', async () => {
    const one = await start('one');
    const other = await start('other');
    one.child.kill('SIGKILL');
    const took = await newKeyWorks();
    console.log(`take-over after SIGKILL: first new key in force after ${Math.round(took)} ms`);
    expect(await leads(other)).toBe(true);
    await other.stop();
  });

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
    await own.becomes(revoked, 401, HANG_MS);
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
  });

  test('a Lease that somebody deleted: terms go on where they were', async () => {
    const one = await start('one');
    const before = await own.lease();
    await own.cluster.leases.deleteNamespacedLease({ namespace: own.home, name: 'partner-ingest-controller' });
    await eventually('a new Lease', async () => (await own.lease()).transitions > before.transitions);
    await newKeyWorks();
    expect(new Set((await allKeys()).map(({ term }) => term))).toEqual(new Set([(await own.lease()).transitions]));
    await one.stop();
  });

  const LEASE = 'partner-ingest-controller';
  const owners = async (): Promise<string[]> => [...new Set((await allKeys()).map(({ source }) => source.owner))];
  const threeKeys = async (): Promise<string[]> => {
    const keys = [newApiKey(), newApiKey(), newApiKey()];
    await own.apply('three', { partner: 'three', keys });
    for (const key of keys) await own.becomes(key, 202, HANG_MS);
    return keys;
  };

  test('the same release in a second cluster on the same database takes no key away', async () => {
    const one = await start('one');
    const keys = await threeKeys();
    await one.stop();
    // What a second cluster is for the database: the same namespace and Lease name, another Lease, none of these Secrets.
    const body = await own.cluster.leases.readNamespacedLease({ namespace: own.home, name: LEASE });
    await own.cluster.leases.deleteNamespacedLease({ namespace: own.home, name: LEASE });
    const elsewhere = await own.cluster.namespace('elsewhere');
    await own.cluster.grant(own.home, [elsewhere]);
    const second = await own.world.spawn('controller', { ...(await own.settings()), WATCH_NAMESPACES: elsewhere });
    started.push(second);
    await eventually('it to have synced', async () => (await fetch(`${second.adminUrl}/readyz`)).ok);
    const key = newApiKey();
    await own.apply('second', { partner: 'second', keys: [key] }, elsewhere);
    await own.becomes(key, 202, HANG_MS);
    for (const kept of keys) expect(await own.status(kept)).toBe(202);
    expect(await owners()).toHaveLength(2);
    await second.stop();
    // Back in the first cluster, with its Lease.
    await own.cluster.leases.deleteNamespacedLease({ namespace: own.home, name: LEASE });
    delete body.metadata?.resourceVersion;
    await own.cluster.leases.createNamespacedLease({ namespace: own.home, body });
    const again = await start('again');
    await own.remove('three');
    await own.becomes(keys[0]!, 401, HANG_MS);
    expect(await own.status(key)).toBe(202);
    await own.remove('second', elsewhere);
    await again.stop();
  });

  test('keys of a version without ids become those of the installation whose Lease they came by, once', async () => {
    const one = await start('one');
    const keys = await threeKeys();
    await one.stop();
    const former = `kubernetes:${own.home}/${LEASE}`;
    const body = await own.cluster.leases.readNamespacedLease({ namespace: own.home, name: LEASE });
    const ours = (await own.stored(keys[0]!))?.source.owner;
    delete body.metadata?.annotations;
    await own.cluster.leases.replaceNamespacedLease({ namespace: own.home, name: LEASE, body });
    const documents = own.world.stores.db.collection<PartnerKey>(PARTNER_KEYS);
    await documents.updateMany({ 'source.owner': ours! }, { $set: { 'source.owner': former } });

    const upgraded = await start('upgraded');
    await newKeyWorks();
    expect(await documents.countDocuments({ 'source.owner': former })).toBe(0);
    for (const kept of keys) expect(await own.status(kept)).toBe(202);
    await own.remove('three');
    await own.becomes(keys[0]!, 401, HANG_MS);
    await eventually('the take-over to be over', async () => {
      const { metadata } = await own.cluster.leases.readNamespacedLease({ namespace: own.home, name: LEASE });
      return Object.keys(metadata?.annotations ?? {}).join() === 'partner-ingest.io/installation';
    });
    await upgraded.stop();
  });
});
