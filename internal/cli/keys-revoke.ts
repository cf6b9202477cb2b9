/** `keys revoke`: ends one key at once, whatever its Secret says. */
import { secretName } from '../partner/key-secret.ts';
import { keyIdOf } from '../partner/api-key.ts';
import { printable } from '../platform/terminal.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { keyId } from './options.ts';

export const keysRevoke: Command = {
  name: 'keys revoke',
  positionals: [keyId],
  about: 'end a key at once, whatever its Secret says; this cannot be undone',
  details:
    'KEY is the id that "keys list" shows, the beginning of the key\'s SHA-256. Every ingest that reaches MongoDB answers the key 401 within about a second, without Kubernetes, the controller or Redis. The controller does not bring it back: a Warning Event asks to remove it from its Secret. A revoked key never works again. Without --yes this shows whose key it is. Give the partner a new key with "keys new".',
  options: ['yes', 'as', 'why'],
  examples: [
    'keys revoke 371b03fdc691',
    'keys revoke 371b03fdc691 --yes --as jane --why "found in a repository"',
  ],
  run: revoke,
};

async function revoke({ desk, positionals, values, out }: Call): Promise<ExitCode> {
  const [id = ''] = positionals;
  const [key, other] = await desk.keys.beginningWith(id);
  if (key === undefined) throw new CommandError(`no key begins with ${id}: see "keys list"`);
  if (other !== undefined)
    throw new CommandError(`several keys begin with ${id}: give more of the SHA-256`);
  const { partnerId, source } = key;
  const shown = {
    key: keyIdOf(key.hash),
    partner: partnerId,
    secret: secretName(source),
  };
  const words = printable(`key ${shown.key} of ${partnerId}, from ${shown.secret},`);
  if (key.revokedAt !== undefined) throw new CommandError(`${words} is revoked already`);
  if (!values.yes) {
    if (values.json) out.json({ dry_run: true, ...shown });
    else out.line(`${words} would be revoked; nothing was changed; add --yes to do it`);
    return EXIT.ok;
  }
  await desk.trail.record({ action: 'keys revoke', partnerId, keyId: shown.key }, () =>
    desk.keys.revoke(key.hash),
  );
  if (values.json) out.json({ ...shown, result: 'revoked' });
  else
    out.line(
      `${words} is revoked: each ingest that reaches MongoDB answers it 401 within a second; remove it from its Secret`,
    );
  return EXIT.ok;
}
