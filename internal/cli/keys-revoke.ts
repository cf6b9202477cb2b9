/** `keys revoke`: ends one key at once, whatever its Secret says. */
import { keyIdOf } from '../partner/api-key.ts';
import { secretName } from '../partner/key-secret.ts';
import type { PartnerKey } from '../partner/key-store.ts';
import { printable } from '../platform/terminal.ts';
import { CommandError } from './command.ts';
import { keyId } from './options.ts';
import { commandOf } from './order.ts';

export const keysRevoke = commandOf<PartnerKey>({
  name: 'keys revoke',
  positionals: [keyId],
  about: 'end a key at once, whatever its Secret says; this cannot be undone',
  details:
    'KEY is the id that "keys list" shows, the beginning of the key\'s SHA-256. Every ingest that reaches MongoDB answers the key 401 within about a second, without Kubernetes, the controller or Redis. The controller does not bring it back: a Warning Event asks to remove it from its Secret. A revoked key never works again. Without --yes this shows whose key it is. Give the partner a new key with "keys new".',
  examples: [
    'keys revoke 371b03fdc691',
    'keys revoke 371b03fdc691 --yes --as jane --why "found in a repository"',
  ],
  final: true,
  select: async ({ desk, positionals }) => {
    const [id = ''] = positionals;
    const all = await desk.keys.list();
    const [key, other] = all.filter(({ hash }) => hash.startsWith(id));
    if (key === undefined) throw new CommandError(`no key begins with ${id}: see "keys list"`);
    if (other !== undefined)
      throw new CommandError(`several keys begin with ${id}: give more of the SHA-256`);
    return key;
  },
  plan: ({ revokedAt, status }) =>
    revokedAt === undefined ? { to: status } : { whyNot: 'is revoked already' },
  act: async ([key], { desk }) => ((await desk.keys.revoke(key!.hash)) ? 1 : 0),
  words: ({ hash, partnerId, source }) => {
    const shown = { key: keyIdOf(hash), partner: partnerId, secret: secretName(source) };
    const subject = printable(`key ${shown.key} of ${partnerId}, from ${shown.secret},`);
    return {
      subject,
      about: { partnerId, keyId: shown.key },
      would: `${subject} would be revoked`,
      done: `${subject} is revoked: each ingest that reaches MongoDB answers it 401 within a second; remove it from its Secret`,
      unchanged: 'is revoked already',
      json: { dry: shown, done: { ...shown, result: 'revoked' } },
    };
  },
});
