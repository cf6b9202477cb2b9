/** For partners: `hold`, `release`, `disable` and `enable` them; `keys new` and `keys revoke`. */
import { partnerFlags as flagOrders, revokeKey } from '../orders/partners.ts';
import { hashApiKey, keyIdOf, newApiKey } from '../partner/api-key.ts';
import { partnerSecretManifest } from '../partner/key-secret.ts';
import { MODE_ANNOTATION } from '../partner/key-terms.ts';
import { defined } from '../platform/process/defined.ts';
import { EXIT, type Command } from './command.ts';
import { keyId, partner as partnerName } from './options.ts';
import { oneCommandOf } from './order.ts';

export const partnerFlags = flagOrders.map((order) =>
  oneCommandOf({
    order,
    positionals: [partnerName],
    options: [],
    atOnce: true,
    given: ({ positionals: [partner] }) => defined({ partner }),
  }),
);

export const keysRevoke = oneCommandOf({
  order: revokeKey,
  positionals: [keyId],
  options: [],
  given: ({ positionals: [key] }) => defined({ key }),
});

/** Makes an API key and the manifest of its Secret; needs no store. */
export const keysNew: Command = {
  name: 'keys new',
  positionals: [partnerName],
  options: ['namespace', 'test'],
  run: ({ positionals, values, out, keysNamespace }) => {
    const [partner = ''] = positionals;
    const { json, test, namespace = keysNamespace } = values;
    const slug = partner.toLowerCase().replace(/[^a-z0-9]+/g, '-');
    const key = newApiKey(defined({ test }));
    // Each key has its own Secret, so that the old key stays active.
    const name = `partner-${slug}-${keyIdOf(hashApiKey(key))}`;
    const annotations = defined({ [MODE_ANNOTATION]: test && 'test' });
    const secret = { name, namespace, partner, keys: [key], annotations };
    const { yaml, object } = partnerSecretManifest(secret);
    if (json) out.json({ key, manifest: object });
    else {
      out.note(`the key, shown only now: ${key}`);
      out.line(yaml.trimEnd());
    }
    return Promise.resolve(EXIT.ok);
  },
};
