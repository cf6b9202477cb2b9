/** Partner Secrets from a folder of Kubernetes manifests: for `make run` and for places without a cluster. */
import { watch as watchFolder } from 'node:fs';
import { readFile, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { PARTNER_LABEL, STATUS_ANNOTATION, type PartnerSecret, type Problem } from '../partner/key-secret.ts';
import type { SecretList, SecretSource } from './secret-source.ts';

/** A file larger than this is no manifest of partner keys. */
const MAX_FILE_BYTES = 1024 * 1024;
/** Where file events do not reach (network volumes), changes are seen this late. */
const POLL_EVERY_MS = 2_000;
/** Editors write in several steps; they are told as one change. */
const SETTLE_MS = 50;

const strings = z.record(z.string(), z.string());
const secretSchema = z.object({
  apiVersion: z.literal('v1'),
  kind: z.literal('Secret'),
  metadata: z.object({
    name: z.string().min(1),
    namespace: z.string().min(1).optional(),
    uid: z.string().optional(),
    creationTimestamp: z.iso.datetime({ offset: true }).optional(),
    labels: strings.optional(),
    annotations: strings.optional(),
  }),
  data: strings.nullish(),
  stringData: strings.nullish(),
});

/** Names this source in every key document: one folder for one database. */
export const DIRECTORY_OWNER = 'directory';

export function directorySource(path: string): SecretSource {
  return {
    follow(onChange, signal) {
      let settling: NodeJS.Timeout | undefined;
      const changed = (): void => {
        clearTimeout(settling);
        settling = setTimeout(onChange, SETTLE_MS);
      };
      try {
        const watcher = watchFolder(path, { signal }, changed);
        // A folder that is taken away ends the events; polling goes on.
        watcher.on('error', () => watcher.close());
      } catch {
        // No events here: polling alone.
      }
      const poll = setInterval(onChange, POLL_EVERY_MS);
      signal.addEventListener('abort', () => {
        clearInterval(poll);
        clearTimeout(settling);
      });
      return { list: () => listFolder(path), faults: () => [] };
    },
  };
}

async function listFolder(path: string): Promise<SecretList> {
  const asOf = new Date();
  const names = (await readdir(path)).filter((name) => /\.(ya?ml|json)$/.test(name)).toSorted();
  const secrets: PartnerSecret[] = [];
  const problems: Problem[] = [];
  for (const name of names) {
    const file = join(path, name);
    try {
      secrets.push(...(await readManifest(file)));
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code ?? (error instanceof Error ? error.name : 'unknown error');
      problems.push({
        source: { namespace: 'directory', name, uid: file },
        code: 'unreadable_file',
        message: `${name} could not be read as Kubernetes manifests (${code}); nothing is removed until it can`,
      });
    }
  }
  // What an unreadable file holds can be of any namespace.
  const complete = problems.length === 0;
  return { secrets, problems, complete, provesGone: () => complete, asOf };
}

/** Throws when a document is no YAML, or calls itself a partner Secret and is not well-formed. */
async function readManifest(file: string): Promise<PartnerSecret[]> {
  const text = await readFile(file, 'utf8');
  if (text.length > MAX_FILE_BYTES) throw new RangeError('file too large');
  const documents = parseAllDocuments(text);
  const secrets: PartnerSecret[] = [];
  for (const document of Array.isArray(documents) ? documents : []) {
    if (document.errors.length > 0) throw new SyntaxError('not YAML');
    const value: unknown = document.toJS();
    if (!isPartnerSecret(value)) continue;
    const { metadata, data, stringData } = secretSchema.parse(value);
    const encoded = Object.entries(stringData ?? {}).map(([entry, key]) => [
      entry,
      Buffer.from(key).toString('base64'),
    ]);
    secrets.push({
      namespace: metadata.namespace ?? 'directory',
      name: metadata.name,
      uid: metadata.uid ?? `${basename(file)}#${metadata.name}`,
      createdAt: metadata.creationTimestamp === undefined ? undefined : new Date(metadata.creationTimestamp),
      partnerId: metadata.labels?.[PARTNER_LABEL] ?? '',
      status: metadata.annotations?.[STATUS_ANNOTATION],
      data: { ...data, ...(Object.fromEntries(encoded) as Record<string, string>) },
    });
  }
  return secrets;
}

function isPartnerSecret(value: unknown): boolean {
  const candidate = z
    .object({ kind: z.literal('Secret'), metadata: z.object({ labels: z.record(z.string(), z.unknown()) }) })
    .safeParse(value);
  return candidate.success && PARTNER_LABEL in candidate.data.metadata.labels;
}
