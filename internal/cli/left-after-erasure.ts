/**
 * Finds what an erasure leaves although it may be the same person: requests with the same EIN or
 * address.
 */
import { normalizeEmail } from '../application/identity.ts';
import type { Person } from '../application/find-person.ts';
import { isEmailAddress } from '../application/email-address.ts';
import type { Desk } from './command.ts';
import { ALIKE_LISTED } from './limits.ts';

export interface Alike {
  readonly same: 'ein' | 'email';
  readonly requestIds: readonly string[];
}

/** The EIN after a search by address, otherwise the address; empty if invalid. */
export function otherHalf(person: Person, { email = '', ein = '' }: Person): string {
  if (person.ein !== undefined) return isEmailAddress(email) ? normalizeEmail(email) : '';
  return /^[0-9]{9}$/.test(ein) ? ein : '';
}

export async function alikeOf(
  { person, named }: { readonly person: Person; readonly named: string | undefined },
  { submissions, accounts }: Pick<Desk, 'submissions' | 'accounts'>,
  { others, gone }: { readonly others: Set<string>; readonly gone: ReadonlySet<string> },
): Promise<Alike> {
  const same = person.ein === undefined ? 'ein' : 'email';
  const found = new Set<string>();
  others.delete('');
  for (const half of others) {
    for await (const page of submissions.ofApplicant({ [same]: half }))
      for (const { _id } of page) if (!gone.has(_id) && _id !== named) found.add(_id);
    for (const { _id, requestId } of await accounts.ofPerson({ [same]: half }, new Set()))
      if (!gone.has(_id) && requestId !== named) found.add(requestId);
    if (found.size >= ALIKE_LISTED) break;
  }
  return { same, requestIds: [...found].slice(0, ALIKE_LISTED) };
}
