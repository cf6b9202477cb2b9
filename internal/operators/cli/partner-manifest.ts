/** Writes `Partner` manifests: of a new key, and of Secrets with annotations. */
import { createReadStream } from 'node:fs';
import { hash } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { parseAllDocuments } from 'yaml';
import { printable } from '../../application/fields.ts';
import { isPartnerId, PARTNER_LABEL, STATUS_ANNOTATION } from '../../partner/key-secret.ts';
import {
  KEYS_MOST,
  type KeyTerms,
  PARTNER_API,
  readTerms,
  smallestBounds,
} from '../../partner/key-terms.ts';
import { defined } from '../../platform/process/defined.ts';
import { CommandError, EXIT, manifestFile, type Command } from './command.ts';
import { manifestText } from './secret-manifest.ts';

interface PartnerWish {
  readonly partner: string;
  readonly namespace: string | undefined;
  readonly suspend?: boolean;
  readonly limits?: object;
  readonly keys: readonly object[];
}

export function partnerManifest({ partner, namespace, suspend, limits, keys }: PartnerWish) {
  const name = nameOf(partner);
  const hasLimits = limits !== undefined && Object.keys(limits).length > 0;
  return {
    apiVersion: `${PARTNER_API.group}/${PARTNER_API.version}`,
    kind: 'Partner',
    metadata: { name, ...defined({ namespace }) },
    spec: {
      ...(name === partner ? {} : { partnerId: partner }),
      ...(suspend === true ? { suspend } : {}),
      ...(hasLimits ? { limits } : {}),
      keys,
    },
  };
}

/** The id itself where Kubernetes takes it as a name; else one that no other id has. */
function nameOf(partner: string): string {
  if (/^[a-z0-9]+(?:[-.][a-z0-9]+)*$/.test(partner)) return partner;
  const slug = partner.toLowerCase().replace(/[^a-z0-9]+/g, '-');
  return `${slug}-${hash('sha256', partner, 'hex').slice(0, 6)}`;
}

/** Only these parts of a Secret are looked at. */
interface SecretRead {
  readonly kind?: unknown;
  readonly items?: readonly SecretRead[];
  readonly metadata?: {
    readonly name?: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>> | null;
    readonly annotations?: Readonly<Record<string, string>> | null;
  };
}

/** Writes the `Partner` of each partner whose annotated Secrets a file holds; needs no store. */
export const partnerManifests: Command = {
  name: 'partner manifests',
  positionals: [manifestFile],
  options: [],
  run: async ({ positionals: [file = '-'] }) => {
    const secrets = (await manifestsIn(file)).flatMap(readAnnotated);
    const made: object[] = [];
    const notes: string[] = [];
    for (const [partner, theirs] of Map.groupBy(secrets, (one) => one.partner)) {
      const fault = faultOf(partner, theirs);
      if (fault === undefined) made.push(manifestOf(partner, theirs));
      else notes.push(`${printable(partner)} is left out: ${printable(fault)}`);
    }
    if (secrets.length === 0)
      throw new CommandError(`no Secret has the label ${PARTNER_LABEL}`, EXIT.found);
    return {
      json: made,
      text: made.map(manifestText).join('\n---\n'),
      notes,
      code: notes.length === 0 ? EXIT.ok : EXIT.found,
    };
  },
};

async function manifestsIn(file: string): Promise<readonly SecretRead[]> {
  const input = file === '-' ? process.stdin : createReadStream(file);
  const read = await text(input).catch((error: unknown) => {
    const { code } = error as NodeJS.ErrnoException;
    throw new CommandError(`${printable(file)} cannot be read: ${code}`, EXIT.usage);
  });
  const documents = parseAllDocuments(read);
  return (Array.isArray(documents) ? documents : []).flatMap((document) => {
    // The parser's words may quote a key.
    if (document.errors.length > 0)
      throw new CommandError(`${printable(file)} is no YAML or JSON`, EXIT.usage);
    const value = document.toJS() as SecretRead | null;
    return value === null ? [] : (value.items ?? [value]);
  });
}

function readAnnotated({ kind, metadata = {} }: SecretRead) {
  const { name = '', namespace, labels, annotations } = metadata;
  const partner = labels?.[PARTNER_LABEL];
  if (kind !== 'Secret' || partner === undefined) return [];
  const given = annotations ?? {};
  const { terms, olderKeys, faults, mildFaults = [] } = readTerms(given);
  const status = given[STATUS_ANNOTATION] ?? 'active';
  const isStatus = ['active', 'inactive'].includes(status);
  const wrong = [
    ...faults,
    ...mildFaults.map(({ fault }) => fault),
    ...(isStatus ? [] : [`annotation ${STATUS_ANNOTATION} must be "active" or "inactive"`]),
  ].map((fault) => `Secret ${name}: ${fault}`);
  return [{ name, namespace, partner, terms, olderKeys, isOff: status === 'inactive', wrong }];
}
type Annotated = ReturnType<typeof readAnnotated>[number];

const isTest = ({ terms }: { readonly terms: KeyTerms }): boolean => terms.test === true;

/** What a `Partner` cannot say, or would say otherwise than the Secrets do. */
function faultOf(partner: string, secrets: readonly Annotated[]): string | undefined {
  if (!isPartnerId(partner)) return `label ${PARTNER_LABEL} is no partner id`;
  if (secrets.length > KEYS_MOST) return `it has more than ${KEYS_MOST} Secrets`;
  if (new Set(secrets.map(({ namespace }) => namespace)).size > 1)
    return 'its Secrets are in two namespaces';
  const off = secrets.filter(({ isOff }) => isOff);
  if (off.length > 0 && off.every(isTest) && !secrets.every(isTest))
    return `its test keys alone are inactive, by Secret ${off[0]!.name}: delete that Secret, or make it active`;
  return secrets.flatMap(({ wrong }) => wrong)[0];
}

function manifestOf(partner: string, secrets: readonly Annotated[]): object {
  const { live = [], test = [] } = Object.groupBy(secrets, (one) =>
    isTest(one) ? 'test' : 'live',
  );
  const ofLive = smallestBounds(live.map(({ terms }) => terms));
  const ofTests = smallestBounds(test.map(({ terms }) => terms));
  return partnerManifest({
    partner,
    namespace: secrets[0]!.namespace,
    suspend: secrets.some(({ isOff }) => isOff),
    limits: {
      ...ofLive,
      ...defined({
        testMaxPerMinute: ofTests.maxPerMinute,
        testDryRunPerMinute: ofTests.dryRunPerMinute,
      }),
    },
    keys: secrets.map(({ name, terms, olderKeys }) => keyOf(name, terms, olderKeys)),
  });
}

export const keyOf = (
  secretName: string,
  { test, receipts, notAfter, cidrs }: KeyTerms,
  older = false,
): object => ({
  secretName,
  ...(test ? { mode: 'test' } : {}),
  ...(older ? { format: 'older' } : {}),
  ...(receipts ? { receipts: 'always' } : {}),
  ...(notAfter === undefined ? {} : { notAfter: notAfter.toISOString() }),
  ...defined({ cidrs }),
});
