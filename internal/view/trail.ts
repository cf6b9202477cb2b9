/** What operators did, newest first, in words. */
import { printable } from '../platform/terminal.ts';
import type { TrailEntry } from '../audit/entry.ts';
import type { Reads } from './reads.ts';

export interface TrailRow {
  readonly id: string;
  readonly at: Date;
  readonly by: string;
  readonly nameFrom: TrailEntry['nameFrom'];
  readonly action: string;
  /** The request, partner or key, or how many requests. */
  readonly about: string;
  readonly why: string;
  readonly result: TrailEntry['result'];
}

/** A page of at most `limit`, older than the entry `before`. */
export async function trailView(
  { trail }: Pick<Reads, 'trail'>,
  limit: number,
  before?: string,
): Promise<TrailRow[]> {
  return (await trail.newest(limit, before)).map((entry) => ({
    id: entry._id,
    at: entry.at,
    by: entry.by,
    nameFrom: entry.nameFrom,
    action: entry.action,
    about: aboutOf(entry),
    why: entry.why ?? '',
    result: entry.result,
  }));
}

function aboutOf({ requestId, partnerId, keyId, count }: Partial<TrailEntry>): string {
  return requestId ?? keyId ?? partnerId ?? (count === undefined ? '' : `${count} requests`);
}

/** For the person who gave the command. */
export function notedInWords({ _id, by, nameFrom, why, ...action }: TrailEntry): string {
  const about = action.requestId ?? action.partnerId ?? action.keyId ?? '';
  const reason = why === undefined ? '' : `, because: ${why}`;
  const hint = nameFrom === 'host' ? '; say who you are with --as NAME' : '';
  const words = [action.action, about].filter((word) => word !== '').join(' ');
  return printable(`noted in operator_audit: ${words}, by ${by} (${nameFrom})${reason}${hint}`);
}
