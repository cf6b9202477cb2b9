/** Writes manifests, and that of the Secret of a partner's keys. */
import { stringify } from 'yaml';
import { keyDigest } from '../../partner/api-key.ts';
import { PARTNER_LABEL } from '../../partner/key-secret.ts';

/** In kubectl's YAML 1.1 a bare `no` is no text, nor is `1_000`. */
export const manifestText = (object: object): string =>
  stringify(object, { compat: 'yaml-1.1' }).trimEnd();

interface KeyManifest {
  readonly name: string;
  readonly namespace: string;
  readonly partner: string;
  readonly keys: readonly string[];
  readonly annotations?: Readonly<Record<string, string>>;
}

export function partnerSecretManifest(wanted: KeyManifest): {
  readonly yaml: string;
  readonly object: object;
} {
  const { name, namespace, partner, keys, annotations = {} } = wanted;
  const object = {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: {
      name,
      namespace,
      labels: { [PARTNER_LABEL]: partner },
      ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    },
    stringData: Object.fromEntries(keys.map((key, index) => [`key-${index + 1}`, keyDigest(key)])),
  };
  return { yaml: manifestText(object), object };
}
