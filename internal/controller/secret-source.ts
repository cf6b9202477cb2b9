/** What all sources of partner Secrets share. */
import { z } from 'zod';
import {
  PARTNER_LABEL,
  STATUS_ANNOTATION,
  type KeySource,
  type PartnerSecret,
  type Problem,
} from '../partner/key-secret.ts';
import { defined } from '../platform/process/defined.ts';
import type { Fault } from '../platform/process/fault.ts';
import type { StoredKey } from '../partner/key-document.ts';
import type { PartnerResource } from '../partner/partner-resource.ts';
import { readTerms } from '../partner/key-terms.ts';

export interface SecretList {
  readonly secrets: readonly PartnerSecret[];
  readonly partners: readonly PartnerResource[];
  /** Whether a `Partner` that `partners` lacks may be there, or come back. */
  readonly lacksPartners?: boolean;
  readonly problems: readonly Problem[];
  /** If false, no key changes. */
  readonly complete: boolean;
  /** Whether a Secret may exist although `secrets` lacks it: its stored keys stay as they are. */
  readonly isUnread?: (source: KeySource) => boolean;
  /** When the list was last current. */
  readonly asOf: Date;
}

export interface SecretView {
  list(): Promise<SecretList>;
  faults(): readonly Fault[];
  /** How often to list without a change; a minute by default. */
  readonly everyMs?: number;
}

export interface SecretSource {
  /** `onChange` may be called too often; a change that it misses is seen after `everyMs`. */
  follow(onChange: () => void, signal: AbortSignal): SecretView;
}

const ANNOTATIONS = 'partner-ingest.io/';
const strings = z.record(z.string(), z.string());
const secretSchema = z.object({
  metadata: z.object({
    name: z.string().min(1),
    namespace: z.string().min(1).default('directory'),
    uid: z.string().default(''),
    // A list has a Date, an event a string.
    creationTimestamp: z.coerce.date().optional(),
    labels: strings.default({}),
    annotations: strings.default({}),
  }),
  data: strings.nullish(),
  stringData: strings.nullish(),
});

/** Throws if the Secret is malformed, and names it and the field, but no value. */
export function readSecret(object: unknown): PartnerSecret {
  const { data: read, error } = secretSchema.safeParse(object);
  if (read === undefined) throw new RangeError(faultOf(object, error));
  const { metadata, data, stringData } = read;
  const { namespace, name, uid, creationTimestamp, labels, annotations } = metadata;
  const encoded = Object.entries(stringData ?? {}).map(
    ([entry, value]) => [entry, Buffer.from(value).toString('base64')] as const,
  );
  return {
    namespace,
    name,
    uid,
    createdAt: creationTimestamp,
    partnerId: labels[PARTNER_LABEL] ?? '',
    status: annotations[STATUS_ANNOTATION],
    ...readTerms(annotations),
    isAnnotated: Object.keys(annotations).some((one) => one.startsWith(ANNOTATIONS)),
    data: { ...data, ...Object.fromEntries(encoded) },
  };
}

/** Quotes no entry's name, which may be a key. */
function faultOf(object: unknown, { issues: [issue] }: z.ZodError): string {
  const { name } = (object as { metadata?: { name?: unknown } | null } | null)?.metadata ?? {};
  const path = issue?.path ?? [];
  const field = path.slice(0, path[0] === 'metadata' ? 3 : 1).join('.');
  return `Secret ${typeof name === 'string' ? name : 'without a name'}: ${field} must be text, in quotes`;
}

/**
 * Makes the Secrets that `isWanted` names again from the stored keys. Of a Secret without keys they show only
 * that it makes its partner inactive.
 */
export function secretsOfStored(
  keys: readonly StoredKey[],
  isWanted: (source: KeySource) => boolean,
): readonly PartnerSecret[] {
  const shown = keys.flatMap((key) => {
    const { source, inactiveBy = source } = key;
    return [
      { key, source, holds: true, isOff: key.inactiveBy?.uid === source.uid },
      { key, source: inactiveBy, holds: false, isOff: key.inactiveBy !== undefined },
    ].filter((one) => isWanted(one.source));
  });
  return [...Map.groupBy(shown, ({ source }) => source.uid).values()].map((all) => {
    const { key, source } = all.find(({ holds }) => holds) ?? all[0]!;
    const digests = all.flatMap(({ holds, key: { hash } }) => (holds ? [`sha256:${hash}`] : []));
    return {
      ...source,
      createdAt: undefined,
      partnerId: key.partnerId,
      ...defined({ followed: key.followed }),
      status: all.some(({ isOff }) => isOff) ? 'inactive' : undefined,
      terms: key.terms,
      faults: [],
      data: Object.fromEntries(
        digests.map((digest, at) => [`key-${at}`, Buffer.from(digest).toString('base64')]),
      ),
    };
  });
}
