/** What commands printed as done must stay true. */
import type { World } from './world.ts';

/** The judged part of a command's JSON output. */
export interface Told {
  readonly request_id?: string;
  readonly to?: string;
  readonly result?: string;
  readonly requests?: readonly Told[];
}

export interface Ended {
  readonly requestId: string;
  /** When the order began: a reopen meanwhile may come before it is told. */
  readonly since: number;
  readonly at: number;
  readonly how: 'closed' | 'released';
}

const TRUE_FOR_MS = 60_000;
/** Words of a bulk order that mean success. */
const DONE = [undefined, 'closed', 'retried', 'resent', 'released'];

export function watchTold(world: World, told: Told, since: number): void {
  for (const { request_id: requestId, to, result } of told.requests ?? [told]) {
    if (requestId === undefined || !DONE.includes(result)) continue;
    const at = world.scheduler.now;
    const how = to === 'closed' ? 'closed' : result === 'released' ? result : undefined;
    if (how !== undefined) world.ended.push({ requestId, since, at, how });
    const historyOf = (): string[] =>
      world
        .records()
        .find(({ _id }) => _id === requestId)
        ?.history.map((one) => JSON.stringify(one)) ?? [];
    const before = historyOf();
    const isThere = to === undefined || before.some((entry) => entry.includes(`"state":"${to}"`));
    if (!isThere) world.untrue.push(`${requestId} was told to be ${to}`);
    world.scheduler.after(TRUE_FOR_MS, () => {
      const lost = before.find((entry, index) => historyOf()[index] !== entry);
      if (lost !== undefined) world.untrue.push(`${requestId} has lost what was told: ${lost}`);
      if (how !== undefined) judgeEnded(world, { requestId, since, at, how });
    });
  }
}

/** An ended request is not mailed until reopen. */
export function judgeEnded(world: World, { requestId, since, at, how }: Ended): void {
  if (world.reopens.some((one) => one.requestId === requestId && one.until >= since)) return;
  const record = world.records().find(({ _id }) => _id === requestId);
  const accounts = [...world.allAccounts(), ...world.erasedAccounts.values()].filter(
    (account) => account.requestId === requestId,
  );
  if (how === 'closed' && record?.state !== 'closed')
    world.untrue.push(`${requestId} was told to be closed, and is ${record?.state}`);
  if (how === 'released' && accounts.some(({ releasedAt }) => releasedAt === undefined))
    world.untrue.push(`${requestId} was told to be released, and is not`);
  const ids = new Set(accounts.map(({ _id }) => _id));
  const mail = world.relay.mails.find(
    ({ accountId, startedAt }) => ids.has(accountId) && startedAt > at,
  );
  if (mail !== undefined)
    world.untrue.push(`${requestId} was ${how} and mailed ${mail.startedAt - at} ms later`);
}
