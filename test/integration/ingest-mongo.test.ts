/** Ingest while its MongoDB hangs or dies. */
import type { Document } from 'mongodb';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { withDeadline } from '../../internal/platform/process/deadline.ts';
import { bodies, expectAnswer, idOf } from '../support/ingest.ts';
import { readinessOf, send, type Answer } from '../support/http.ts';
import { startMongoWire } from '../support/mongo-wire.ts';
import { openOwnWorld, type OwnWorld } from '../support/processing.ts';
import { HANG_MS, HEAL_HANG_MS, eventually } from '../support/wait.ts';
import type { InProcess } from '../support/world.ts';

/** More than the kernel buffers, so that writing stalls. */
const LARGE = JSON.stringify({ business_name: 'x'.repeat(60_000) });

let own: OwnWorld;
let ingest: InProcess;

beforeAll(async () => {
  own = await openOwnWorld({ environment: { ACCEPT_TIMEOUT_MS: '1000' } });
  ingest = await own.world.start('ingest');
});
afterAll(() => own.close());

const post = (body: string): Promise<Answer> => send(ingest.url, { key: own.world.key, body });

test.each([
  // In more batches than there are connections.
  ['hangs, and hangs again', 2, 'SIGSTOP'],
  ['is killed', 1, 'SIGKILL'],
] as const)(
  'when MongoDB %s every request is answered 500 in time, and none is processed later',
  async (_name, times, signal) => {
    const { world, mongo } = own;
    for (let round = 0; round < times; round += 1) {
      const dropped = () => world.metric(ingest, 'partner_ingest_refused_dropped_total');
      const before = await dropped();
      await mongo.signal(signal);
      const refused = send(ingest.url, { body: '{}' });
      const bodiesSent = [...Array<string>(150).fill(LARGE), '[]', 'x'.repeat(70_000), ''];
      const answers = await withDeadline(Promise.all(bodiesSent.map(post)), HANG_MS, 'refusing');
      const ids = answers.map((answer) => expectAnswer(answer, 500, bodies.internal));
      // What stores nothing is answered as ever, and the pod stays ready, so that partners see the 500s.
      expectAnswer(await refused, 401, bodies.keyMissing);
      await eventually('the refusal to be counted', async () => (await dropped()) > before);
      expect((await fetch(`${ingest.adminUrl}/readyz`)).ok).toBe(true);
      await (signal === 'SIGKILL' ? mongo.restart() : mongo.signal('SIGCONT'));
      const again = await eventually('a 202', async () => {
        const answer = await post('{"a":1}');
        return answer.status === 202 && idOf(answer);
      });
      expect(await world.record(again)).toMatchObject({ state: 'recorded', httpStatus: 202 });
      await eventually(
        'all withdrawals to be acknowledged',
        async () => (await world.metric(ingest, 'partner_ingest_withdrawals_pending')) === 0,
        HEAL_HANG_MS,
      );
      for (const record of await world.records({ _id: { $in: ids } })) {
        const expiresAt = expect.any(Date);
        expect(record).toMatchObject({
          state: 'withdrawn',
          httpStatus: 500,
          version: 0,
          expiresAt,
        });
        expect(record.dueAt).toBeUndefined();
      }
    }
  },
);

test("a full disk of MongoDB has its code at /readyz and MongoDB's own words in the log", async () => {
  const { world, mongo } = own;
  const wire = await startMongoWire(mongo.url);
  const full = { index: 0, code: 14_031, errmsg: 'No space left on /data: { email: "x@y.z" }' };
  let isFull = false;
  const isWrite = (command: Document): boolean =>
    'insert' in command || 'update' in command || 'findAndModify' in command;
  wire.instead((command) =>
    isFull && isWrite(command) ? { ok: 1, n: 0, nModified: 0, writeErrors: [full] } : undefined,
  );
  const names = ['ingest', 'processor'] as const;
  const [pod, processor] = await Promise.all(
    names.map((name) => world.spawn(name, { MONGODB_URI: wire.url })),
  );
  const postTo = (): Promise<Answer> => send(pod!.url, { key: world.key, body: '{"a":1}' });
  try {
    const id = idOf(await postTo());
    await world.recordIn('rejected', id);
    isFull = true;
    expectAnswer(await postTo(), 500, bodies.internal);
    await world.stores.requests.updateOne(
      { _id: id },
      { $set: { state: 'recorded', dueAt: new Date(0) } },
    );
    for (const service of [pod!, processor!]) {
      const { codes, warnings } = await eventually('the warning', async () => {
        const told = await readinessOf(service);
        return told.codes.some(({ code }) => code === 'disk_full') && told;
      });
      expect(codes).toContainEqual({ code: 'disk_full', of: 'MongoDB' });
      expect(warnings.join()).toMatch(/MongoDB at \S+: its disk is full, and .*14031/);
      const logs = service.lines.join('\n');
      expect(logs).toContain('No space left on /data: {…}');
      expect(logs).not.toContain('x@y.z');
    }
    isFull = false;
    await eventually('the warnings to end', async () => {
      await postTo();
      const told = await Promise.all([readinessOf(pod!), readinessOf(processor!)]);
      return told.every(({ codes }) => codes.every(({ code }) => code !== 'disk_full'));
    });
  } finally {
    isFull = false;
    await Promise.all([pod!.stop(), processor!.stop()]);
    await wire.close();
  }
});
