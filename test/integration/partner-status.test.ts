/** When the status of a `Partner` is written. test/kubernetes/partners.test.ts has what it says. */
import { expect, test } from '@jest/globals';
import type { LeaderLoop } from '../../internal/controller/leadership.ts';
import { PartnerStatus } from '../../internal/controller/partner-status.ts';
import { hashApiKey } from '../../internal/partner/api-key.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { readPartner } from '../../internal/partner/partner-resource.ts';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { DeadlineError } from '../../internal/platform/process/deadline.ts';
import type { Loop } from '../../internal/platform/process/loop.ts';
import { worldOf } from '../support/world.ts';

const { world } = await worldOf([], { controller: false });

interface Written {
  readonly conditions: readonly { readonly reason: string }[];
}

/** A writer beside an API server in memory, which throws `failures` by the name of the Partner. */
function openWriter(knownAtFirst: number, writeMs = 0) {
  const statuses = new Map<string, Written>();
  const failures = new Map<string, Error>();
  const loops: LeaderLoop[] = [];
  const facts = { known: knownAtFirst };
  let atMs = 0;
  const clock = { ...systemClock, monotonicMs: () => atMs };
  const writer = new PartnerStatus({
    custom: {
      patchNamespacedCustomObjectStatus: ({ name, body }) => {
        atMs += writeMs;
        const failure = failures.get(name);
        if (failure !== undefined) return Promise.reject(failure);
        statuses.set(name, (body as [unknown, { value: Written }])[1].value);
        return Promise.resolve(undefined);
      },
    },
    kubernetes: { faultOf: () => ({ code: 'any', words: 'any' }) },
    leadership: { start: (loop) => (loops.push(loop), { wake: () => {} }) as unknown as Loop },
    store: new KeyStore({ db: world.stores.db, clock }),
    keysKnown: () => Promise.resolve(facts.known),
    clock,
  });
  /** A complete round that found this version, and `count` keys of each partner. */
  const round = async (names: readonly string[], version: number, count: number): Promise<void> => {
    const partners = names.map((name) =>
      readPartner({
        apiVersion: 'partner-ingest.io/v1alpha1',
        kind: 'Partner',
        metadata: { name, namespace: 'keys', uid: name, generation: 1 },
        spec: { keys: [{ secretName: name }] },
        status: statuses.get(name),
      }),
    );
    const keys = names.flatMap((partnerId) =>
      Array.from({ length: count }, (_, at) => ({
        hash: hashApiKey(`${partnerId} ${at}`),
        partnerId,
        status: 'active' as const,
        terms: {},
        source: { namespace: 'keys', name: partnerId, uid: partnerId },
        updatedAt: new Date(0),
      })),
    );
    const list = { partners, secrets: [], problems: [], complete: true, asOf: new Date(0) };
    const found = { all: partners, voided: new Set<string>(), problems: [], keys };
    writer.reconciled(
      {
        ...found,
        partners: new Map(partners.map((one) => [one.partnerId, one])),
        readAt: version,
        version,
        changed: new Set(),
      },
      { list: () => Promise.resolve(list), faults: () => [] },
    );
    await loops[0]!.run(new AbortController().signal);
  };
  const reasonOf = (name: string) => statuses.get(name)?.conditions[0]?.reason;
  return { facts, failures, round, reasonOf };
}

test('after a round that failed behind its write, Ready waits for the version it wrote', async () => {
  const { facts, round, reasonOf } = openWriter(3);
  await round(['acme'], 3, 1);
  expect(reasonOf('acme')).toBe('KeysKnown');
  // A round wrote version 4 with another key, and told nobody of it.
  await round(['acme'], 4, 2);
  expect(reasonOf('acme')).toBe('NotYetKnown');
  facts.known = 4;
  await round(['acme'], 4, 2);
  expect(reasonOf('acme')).toBe('KeysKnown');
});

test('what is slow to write is written in several passes, and a change need not wait', async () => {
  const { round, reasonOf } = openWriter(3, 1_000);
  const many = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];
  const written = () => many.filter((name) => reasonOf(name) === 'KeysKnown').length;
  await round(many, 3, 1);
  expect(written()).toBe(3);
  for (let pass = 0; pass < 2; pass += 1) await round(many, 3, 1);
  expect(written()).toBe(many.length);
});

test.each([404, 409])(
  'a status that another writer changed (%d) waits for the next pass',
  async (code) => {
    const { failures, round, reasonOf } = openWriter(3);
    failures.set('aaa', Object.assign(new Error('changed'), { code }));
    await round(['aaa', 'bbb'], 3, 1);
    expect(['aaa', 'bbb'].map(reasonOf)).toEqual([undefined, 'KeysKnown']);
    failures.clear();
    await round(['aaa', 'bbb'], 3, 1);
    expect(reasonOf('aaa')).toBe('KeysKnown');
  },
);

test('one status that is not answered holds back no other', async () => {
  const { failures, round, reasonOf } = openWriter(3);
  const both = ['aaa', 'bbb'] as const;
  failures.set('aaa', new DeadlineError('a webhook'));
  await expect(round(both, 3, 1)).rejects.toThrow('a webhook');
  await expect(round(both, 3, 1)).rejects.toThrow('a webhook');
  expect(both.map(reasonOf)).toEqual([undefined, 'KeysKnown']);
  failures.clear();
  await round(both, 3, 1);
  expect(both.map(reasonOf)).toEqual(['KeysKnown', 'KeysKnown']);
});
