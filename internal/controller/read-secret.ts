/** Reads the needed fields of a partner Secret. */
import { z } from 'zod';
import { PARTNER_LABEL, STATUS_ANNOTATION, type PartnerSecret } from '../partner/key-secret.ts';
import { termAnnotations } from '../partner/key-terms.ts';

const strings = z.record(z.string(), z.string());
const secretSchema = z.object({
  metadata: z.object({
    name: z.string().min(1),
    namespace: z.string().min(1).default('directory'),
    uid: z.string().default(''),
    resourceVersion: z.string().default(''),
    // A list has a Date, an event a string.
    creationTimestamp: z.coerce.date().optional(),
    labels: strings.optional(),
    annotations: strings.optional(),
  }),
  data: strings.nullish(),
  stringData: strings.nullish(),
});

/** Throws if the Secret is malformed. */
export function readSecret(
  object: unknown,
  uid = '',
): { readonly secret: PartnerSecret; readonly version: string } {
  const { metadata, data, stringData } = secretSchema.parse(object);
  const clear = Object.entries(stringData ?? {});
  const encoded = clear.map(
    ([entry, value]) => [entry, Buffer.from(value).toString('base64')] as const,
  );
  return {
    secret: {
      namespace: metadata.namespace,
      name: metadata.name,
      uid: metadata.uid === '' ? uid : metadata.uid,
      createdAt: metadata.creationTimestamp,
      partnerId: metadata.labels?.[PARTNER_LABEL] ?? '',
      status: metadata.annotations?.[STATUS_ANNOTATION],
      annotations: termAnnotations(metadata.annotations),
      data: { ...data, ...Object.fromEntries(encoded) },
    },
    version: metadata.resourceVersion,
  };
}
