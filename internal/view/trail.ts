/** What an operator did, in words. */
import { printable } from '../platform/terminal.ts';
import type { TrailEntry } from '../audit/entry.ts';

/** For the person who gave the command. */
export function notedInWords({ _id, by, nameFrom, why, ...action }: TrailEntry): string {
  const about = action.requestId ?? action.partnerId ?? action.keyId ?? '';
  const reason = why === undefined ? '' : `, because: ${why}`;
  const hint = nameFrom === 'host' ? '; say who you are with --as NAME' : '';
  const words = [action.action, about].filter((word) => word !== '').join(' ');
  return printable(`noted in operator_audit: ${words}, by ${by} (${nameFrom})${reason}${hint}`);
}
