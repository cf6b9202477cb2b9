/** `keys new`: makes an API key's Secret manifest. */
import { hashApiKey, keyIdOf, newApiKey } from '../partner/api-key.ts';
import { partnerSecretManifest } from '../partner/key-manifest.ts';
import { MODE_ANNOTATION } from '../partner/key-terms.ts';
import { defined } from '../platform/defined.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { partner as partnerName } from './options.ts';

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
