/** What the members of MongoDB said of themselves, to explain why none of them can be used. */
import { MongoServerSelectionError, type MongoClient } from 'mongodb';
import type { ContactAttempt } from '../process/contact-failure.ts';
import { defined } from '../process/defined.ts';
import { failureOf, knownFailure, type ServerFailure } from '../process/server-words.ts';

/** Of the answer to `hello`. */
interface Hello {
  readonly setName?: string;
  readonly hosts?: readonly string[];
  readonly isWritablePrimary?: boolean;
  readonly ismaster?: boolean;
  readonly secondary?: boolean;
  readonly arbiterOnly?: boolean;
  readonly isreplicaset?: boolean;
  readonly msg?: string;
}

/** A set has at most 50 members; more are of names that have changed. */
const MEMBERS_KEPT = 100;
const MEMBERS_SHOWN = 7;

const seen = new WeakMap<MongoClient, Map<string, Hello>>();

export function watchMembers(client: MongoClient): void {
  const members = new Map<string, Hello>();
  seen.set(client, members);
  client.on('serverHeartbeatSucceeded', ({ connectionId, reply }) => {
    if (members.size >= MEMBERS_KEPT) members.clear();
    members.set(connectionId, reply);
  });
  client.on('serverHeartbeatFailed', ({ connectionId }) => members.delete(connectionId));
}

/** Which member was tried, who named it, and what it is if that is the cause. */
export function attemptAt(client: MongoClient, error: unknown): ContactAttempt {
  const { hosts, srvHost, proxyHost, proxyPort } = client.options;
  const members = seen.get(client) ?? new Map<string, Hello>();
  const given = hosts.map(String);
  const isSelection = error instanceof MongoServerSelectionError;
  const found = isSelection ? misfit(client, members) : undefined;
  const failure = found ?? failureOf(error);
  const primary = [...members].find(([, hello]) => isPrimary(hello))?.[0];
  const tried = triedBy(error, failure, isSelection ? undefined : primary) ?? given;
  const isNamed = tried.length > 0 && !tried.some((at) => given.includes(at));
  const [teller, told] = [...members].find(([, { setName }]) => setName !== undefined) ?? [];
  const set = told?.setName === undefined ? 'the replica set' : `the replica set ${told.setName}`;
  const bySet = teller === undefined ? set : `${set}, asked at ${teller},`;
  return defined({
    at: tried.join(', ') || srvHost,
    failure: found,
    through: proxyHost === undefined ? undefined : `${proxyHost}:${proxyPort ?? 1080}`,
    ...(isNamed ? { namedBy: bySet, setting: `the config of ${set} (rs.conf)` } : {}),
    ...(!isNamed && srvHost !== undefined && hosts.length > 0
      ? { namedBy: `the SRV record of ${srvHost}` }
      : {}),
    besides: isSelection && found === undefined ? statesOf(members) : undefined,
  });
}

/** Where the error says nothing of it, a command went to the primary. */
function triedBy(error: unknown, { at }: ServerFailure, primary: string | undefined) {
  if (at.length > 0) return at;
  const { servers } = ((error as { reason?: unknown } | null)?.reason ?? {}) as {
    servers?: ReadonlyMap<string, unknown>;
  };
  if (servers instanceof Map && servers.size > 0)
    return [...(servers as Map<string, unknown>).keys()];
  return primary === undefined ? undefined : [primary];
}

const isPrimary = ({ isWritablePrimary, ismaster }: Hello): boolean =>
  isWritablePrimary === true || ismaster === true;

/** Of a member that answers, and is not what the URI says. The driver forgets such a member. */
function misfit(client: MongoClient, members: ReadonlyMap<string, Hello>) {
  const { replicaSet: given } = client.options;
  for (const [at, { setName: found, msg, isreplicaset }] of members) {
    if (isreplicaset === true) return knownFailure('set_not_initiated', {}, at);
    if (given === undefined || given === null || found === given) continue;
    if (found !== undefined) return knownFailure('set_name_differs', { given, found }, at);
    return knownFailure(msg === 'isdbgrid' ? 'is_mongos' : 'not_of_a_set', { given }, at);
  }
  return undefined;
}

/** What the members that answer are; none is the primary, or it does not answer. */
function statesOf(members: ReadonlyMap<string, Hello>): string | undefined {
  const states = [...members]
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .slice(0, MEMBERS_SHOWN)
    .map(([at, hello]) => `${at} is ${stateOf(hello)}`);
  return states.length === 0 ? undefined : states.join(', ');
}

function stateOf(hello: Hello): string {
  if (isPrimary(hello)) return 'the primary';
  if (hello.secondary === true) return 'a secondary';
  if (hello.arbiterOnly === true) return 'an arbiter';
  return 'neither primary nor secondary';
}
