/** `keys new` and `keys list`: make an API key's Secret manifest, and list keys. */
import { styleText } from 'node:util';
import { secretName } from '../partner/key-secret.ts';
import { hashApiKey, keyIdOf, newApiKey } from '../partner/api-key.ts';
import { partnerSecretManifest } from '../partner/key-manifest.ts';
import { printable, table } from '../platform/terminal.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { partner as partnerName } from './options.ts';
import { KEYS_LISTED, type PartnerKey } from '../partner/key-store.ts';
import { lastUseCells, utc } from './timeline.ts';

export const keysNew: Command = {
  name: 'keys new',
  positionals: [partnerName],
  about: 'a fresh API key, and the Secret manifest with its digest to apply',
  details:
    'Needs no store and changes nothing: the key is active once the Secret is applied. The key is printed to standard error, the manifest to standard output; it holds only the SHA-256 of the key. In the pods of the chart the namespace is the one that the controller watches (WATCH_NAMESPACES). Old keys stay until their Secrets are deleted, so a rotation is: new, apply, hand over, wait for "keys list" to show the old one unused, delete. This is the only time the key is shown.',
  options: ['namespace'],
  examples: [
    'keys new acme | kubectl apply -f -',
    'keys new acme --namespace partner-ingest-keys > acme-key.yaml',
  ],
  run: (call) => Promise.resolve(newKey(call)),
};

export const keysList: Command = {
  name: 'keys list',
  positionals: [],
  about: 'active keys, with their Secret and their last use',
  details:
    'Keys are named by the beginning of their SHA-256. "inactive by SECRET" names the Secret whose status says so; "disabled" is "partner disable". The last use is at most 30 s behind.',
  options: ['partner'],
  examples: ['keys list', 'keys list --partner acme --json'],
  run: listKeys,
};

function newKey({ positionals, values, out, keysNamespace }: Call): ExitCode {
  const [partner = ''] = positionals;
  const namespace = values.namespace ?? keysNamespace;
  const slug = partner.toLowerCase().replace(/[^a-z0-9]+/g, '-');
  const key = newApiKey();
  // Each key has its own Secret, so that the old key stays active.
  const name = `partner-${slug}-${keyIdOf(hashApiKey(key))}`;
  const secret = { name, namespace, partner, keys: [key] };
  const { yaml, object } = partnerSecretManifest(secret);
  if (values.json) out.json({ key, manifest: object });
  else {
    out.note(`the key, shown only now: ${key}`);
    out.line(yaml.trimEnd());
  }
  return EXIT.ok;
}

async function listKeys({ desk, values, out, clock }: Call): Promise<ExitCode> {
  const now = clock.now();
  const { partner } = values;
  const [keys, flagged] = await Promise.all([desk.keys.list(partner), desk.keys.disabled()]);
  const disabled = new Set(flagged.map(({ _id }) => _id));
  const statusOf = (key: PartnerKey): string => {
    if (key.revokedAt !== undefined) return 'revoked';
    return key.status !== 'removed' && disabled.has(key.partnerId) ? 'disabled' : key.status;
  };
  if (values.json) {
    out.json(
      keys.map((key) => ({
        key: keyIdOf(key._id),
        partner: key.partnerId,
        status: statusOf(key),
        inactive_by: key.inactiveBy === undefined ? null : secretName(key.inactiveBy),
        secret: secretName(key.source),
        last_used_at: key.lastUsedAt ?? null,
        not_after: key.terms?.notAfter ?? null,
        cidrs: key.terms?.cidrs ?? null,
        changed_at: key.updatedAt,
        revoked_at: key.revokedAt ?? null,
      })),
    );
  } else if (keys.length > 0) {
    const ends = keys.some(({ terms }) => terms?.notAfter !== undefined);
    const header = [
      'PARTNER',
      'STATUS',
      'KEY',
      'SECRET',
      'LAST USED (UTC)',
      '',
      ...(ends ? ['ENDS (UTC)'] : []),
    ];
    const rows = keys.map((key) => {
      const { _id, partnerId, source, lastUsedAt, terms, inactiveBy } = key;
      return [
        partnerId,
        `${statusOf(key)}${inactiveBy === undefined ? '' : ` by ${secretName(inactiveBy)}`}`,
        keyIdOf(_id),
        secretName(source),
        ...lastUseCells(lastUsedAt, now),
        ...(terms?.notAfter === undefined ? [] : [utc(terms.notAfter).slice(0, -4)]),
      ].map(printable);
    });
    out.line(table([header.map((name) => styleText('dim', name)), ...rows], ''));
  }
  if (keys.length === KEYS_LISTED) out.note(`only the first ${KEYS_LISTED} keys are listed`);
  if (keys.length > 0) return EXIT.ok;
  out.note(
    partner === undefined ? 'there are no keys' : `partner ${printable(partner)} has no keys`,
  );
  return EXIT.found;
}
