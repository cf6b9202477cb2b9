/** A first try by an SRE, a partner and support. */
import { afterAll, beforeAll, expect } from '@jest/globals';
import type { Answer } from '../support/http.ts';
import { requestIdOf } from '../support/world.ts';
import { eventually } from '../support/wait.ts';
import { restartsOf } from './diagnosis.ts';
import { DEFAULT_LIMIT } from './release.ts';
import { answeredByEach, componentOf, openWorld, PODS, step, type World } from './world.ts';

const DEMO_KEY = 'pik_evaluation_only_not_for_production';
const MAIL_WITHIN_MS = 20_000;
/** Requests that earlier steps may have sent in the same minute. */
const BEFORE = 30;
const OVER_LIMIT = 40;
const AT_ONCE = 4;
/** A busy Redis may miss its 50 ms, so pods then count on their own. */
const LIMIT_TRIES = 5;
/**
 * Events of a normal start: an early probe, a pending volume, a conflict of writes, a slow node.
 */
const isUsual = ({
  reason,
  message,
}: {
  readonly reason: string;
  readonly message: string;
}): boolean =>
  ['Unhealthy', 'FailedScheduling'].includes(reason) ||
  /the object has been modified|failed to sync \w+ cache/.test(message);

let world: World;
let [requestId, email] = ['', ''];
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());

step('SRE: two pods of each are ready, none restarted, and no Event warns', async () => {
  const pods = await world.settled();
  const counts = Object.groupBy(pods, componentOf);
  expect(
    Object.fromEntries(Object.entries(counts).map(([name, of]) => [name, of?.length])),
  ).toEqual(PODS);
  expect(pods.filter((pod) => restartsOf(pod) > 0).map(({ metadata }) => metadata.name)).toEqual(
    [],
  );

  const said = world.installSaid.split('\n').filter((line) => /warning/i.test(line));
  const events = await world.kubectl.json<{ items: { reason: string; message: string }[] }>(
    'get events --field-selector=type=Warning',
  );
  const unusual = events.items.filter((event) => !isUsual(event));
  const warnings = [...said, ...unusual.map(({ reason, message }) => `${reason}: ${message}`)];
  expect(warnings).toEqual([]);
});

step('partner: an application leads to 202, an account and an e-mail', async () => {
  const unique = String(Date.now()).slice(-9);
  email = `ada+${unique}@example.com`;
  const answer = await world.post(
    DEMO_KEY,
    JSON.stringify({ email, business_name: 'Ada Ltd', ein: unique }),
  );
  expect(answer.status).toBe(202);
  expect(answer.json).toEqual({
    message: 'Request accepted for processing',
    data: { request_id: expect.stringMatching(/^req_/) },
  });
  requestId = requestIdOf(answer);
  expect(answer.headers['x-request-id']).toBe(requestId);
  const mail = await eventually(
    'the e-mail',
    async () =>
      (await world.mails()).find(({ envelope }) =>
        envelope.to.some(({ address }) => address === email),
      ),
    MAIL_WITHIN_MS,
  );
  expect(mail.subject).not.toBe('');
  const account = await world.withDb((db) => db.collection('accounts').findOne({ requestId }));
  expect(account).toMatchObject({ emailNormalized: email, ein: unique });
});

step('partner: faulty requests are answered as the contract says', async () => {
  const refused = async (key: string | undefined, body: string): Promise<[number, unknown]> => {
    const { status, json } = await world.post(key, body);
    return [status, (json as { error: string }).error];
  };
  expect(await refused(undefined, '{}')).toEqual([401, 'Unauthorized: API Key missing']);
  expect(await refused('pik_nobody_has_this_key_at_all', '{}')).toEqual([
    401,
    'Unauthorized: Invalid API Key',
  ]);
  expect(await refused(DEMO_KEY, '[]')).toEqual([400, 'Request body must be a JSON object']);
  const tooLong = JSON.stringify({ pad: 'x'.repeat(65_000) });
  expect(await refused(DEMO_KEY, tooLong)).toEqual([
    400,
    'Request body must not exceed 65000 bytes',
  ]);
});

step('partner: two ingest pods share the limit of 300 a minute', async () => {
  for (let tried = 1; tried <= LIMIT_TRIES; tried += 1) {
    await eventually('all pods to count in Redis', async () => (await fallback()) === 0);
    const [before, local] = [await answeredByEach(world), await countedAlone()];
    const answers = await sendMany(DEFAULT_LIMIT + OVER_LIMIT);
    // Another try is fair only if Redis was late.
    if (tried < LIMIT_TRIES && (await countedAlone()) > local) continue;
    const limited = answers.filter(({ status }) => status === 429);
    // A new minute may have begun, with a new window.
    if (tried < LIMIT_TRIES && limited.length < OVER_LIMIT) continue;
    expect(limited.length).toBeGreaterThanOrEqual(OVER_LIMIT);
    expect(limited.length).toBeLessThanOrEqual(OVER_LIMIT + BEFORE);
    expect(answers.filter(({ status }) => ![202, 429].includes(status))).toEqual([]);
    for (const { headers } of limited) expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    const after = await answeredByEach(world);
    expect(after.filter((count, index) => count > (before[index] ?? 0))).toHaveLength(2);
    return;
  }
});

step('support: one command in a pod shows the state of the request', async () => {
  const cli = (...words: string[]): Promise<string> =>
    world.kubectl.run(
      `exec deployment/${world.release.fullname}-processor -- partner-ingest ${words.join(' ')}`,
    );
  const shown = await cli('show', requestId, '--as', 'e2e');
  expect(shown).toContain(`${requestId}  completed`);
  expect(shown).toContain('1 handed over');
  expect(shown).not.toContain(email);
  expect(await cli('find', '--email', email, '--as', 'e2e')).toContain(requestId);
});

step('SRE: `helm test` passes', async () => {
  const { out } = await world.kubectl.helm(['test', world.release.name, '--timeout', '2m']);
  expect(out).toMatch(/Phase:\s+Succeeded/);
});

const fallback = (): Promise<number> => world.metric('ingest', 'partner_ingest_limiter_fallback');
const countedAlone = (): Promise<number> =>
  world.metric('ingest', 'partner_ingest_limiter_decisions_total', { store: 'local' });

async function sendMany(count: number): Promise<Answer[]> {
  const answers: Answer[] = [];
  while (answers.length < count)
    answers.push(
      ...(await Promise.all(Array.from({ length: AT_ONCE }, () => world.post(DEMO_KEY, '{}')))),
    );
  return answers;
}
