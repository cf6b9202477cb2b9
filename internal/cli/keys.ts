/** `keys new` and `keys list`: make an API key's Secret manifest, and list keys. */
import { hashApiKey, keyIdOf, newApiKey } from '../partner/api-key.ts';
import { partnerSecretManifest } from '../partner/key-manifest.ts';
import { MODE_ANNOTATION } from '../partner/key-terms.ts';
import { defined } from '../platform/defined.ts';
import { printable } from '../platform/terminal.ts';
import { keysView } from '../view/partners.ts';
import { utcSeconds } from '../view/times.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { partner as partnerName } from './options.ts';
import { headed, lastUseCells } from './tables.ts';

export const keysNew: Command = {
  name: 'keys new',
  positionals: [partnerName],
  about: 'a fresh API key, and the Secret manifest with its digest to apply',
  details:
    'Needs no store and changes nothing: the key is active once the Secret is applied. The key is printed to standard error, the manifest to standard output; it holds only the SHA-256 of the key. In the pods of the chart the namespace is the one that the controller watches (WATCH_NAMESPACES). Old keys stay until their Secrets are deleted, so a rotation is: new, apply, hand over, wait for "keys list" to show the old one unused, delete. This is the only time the key is shown. With --test the key begins pik_test_, and what it submits is a test (docs/contract.md).',
  options: ['namespace', 'test'],
  examples: [
    'keys new acme | kubectl apply -f -',
    'keys new acme --test | kubectl apply -f -',
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
  const { test } = values;
  const key = newApiKey(defined({ test }));
  // Each key has its own Secret, so that the old key stays active.
  const name = `partner-${slug}-${keyIdOf(hashApiKey(key))}`;
  const annotations = defined({ [MODE_ANNOTATION]: test && 'test' });
  const secret = { name, namespace, partner, keys: [key], annotations };
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
  const keys = await keysView(desk, partner);
  if (values.json) {
    out.json(
      keys.map((one) => ({
        key: one.key,
        partner: one.partner,
        mode: one.test ? 'test' : 'live',
        status: one.status,
        inactive_by: one.inactiveBy ?? null,
        secret: one.secret,
        last_used_at: one.lastUsedAt ?? null,
        not_after: one.notAfter ?? null,
        cidrs: one.cidrs ?? null,
        changed_at: one.changedAt,
        revoked_at: one.revokedAt ?? null,
      })),
    );
  } else if (keys.length > 0) {
    const ends = keys.some(({ notAfter }) => notAfter !== undefined) ? ['ENDS (UTC)'] : [];
    const header = ['PARTNER', 'STATUS', 'KEY', 'SECRET', 'LAST USED (UTC)', '', ...ends];
    const rows = keys.map((one) => [
      one.partner,
      `${one.test ? 'test, ' : ''}${one.status}${one.inactiveBy === undefined ? '' : ` by ${one.inactiveBy}`}`,
      one.key,
      one.secret,
      ...lastUseCells(one.lastUsedAt, now),
      ...(one.notAfter === undefined ? [] : [utcSeconds(one.notAfter)]),
    ]);
    out.line(headed(header, rows));
  }
  if (keys.length > 0) return EXIT.ok;
  out.note(
    partner === undefined ? 'there are no keys' : `partner ${printable(partner)} has no keys`,
  );
  return EXIT.found;
}
