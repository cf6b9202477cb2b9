/** What operators did, newest first. */
import { printable } from '../platform/terminal.ts';
import type { TrailEntry } from '../audit/entry.ts';
import type { Reads } from './reads.ts';

export interface TrailRow extends TrailEntry {
  /** The request, partner or key, or how many requests. */
  readonly about: string;
}

/** A page of at most `limit`, older than the entry `before`. */
export async function trailView(
  { trail }: Pick<Reads, 'trail'>,
  limit: number,
  before?: string,
): Promise<TrailRow[]> {
  const entries = await trail.newest(limit, before);
  return entries.map((entry) => ({ ...entry, about: aboutOf(entry) }));
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
