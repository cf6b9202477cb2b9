/** Partner Secrets from a folder of Kubernetes manifests: for `make run` and for places without a cluster. */
import { watch as watchFolder } from 'node:fs';
import { readFile, readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import { pause } from '../platform/deadline.ts';
import { PARTNER_LABEL, STATUS_ANNOTATION, type PartnerSecret, type Problem } from '../partner/key-secret.ts';
import { termAnnotations } from '../partner/key-terms.ts';
import type { SecretList, SecretSource } from './secret-source.ts';

/** A file larger than this is no manifest of partner keys. */
const MAX_FILE_BYTES = 1024 * 1024;
/** Where file events do not reach (network volumes), changes are seen this late. */
const POLL_EVERY_MS = 2_000;
/** Editors write in several steps; they are told as one change. */
const SETTLE_MS = 50;
/** A file that changes within this time is still being written. */
const QUIET_MS = 500;

const strings = z.record(z.string(), z.string());
const secretSchema = z.object({
  apiVersion: z.literal('v1'),
  kind: z.literal('Secret'),
  metadata: z.object({
    name: z.string().min(1),
    namespace: z.string().min(1).optional(),
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
      const folder = new FollowedFolder(path);
      return { list: () => folder.list(), faults: () => [] };
    },
  };
}

/** One folder as last seen: what a file held when it was last whole stays while it cannot be read. */
class FollowedFolder {
  readonly #path: string;
  #files: ReadonlyMap<string, SeenFile> = new Map();
  /** Device and inode of the folder when it last held a manifest: an empty folder in its place is an unmounted one. */
  #filledAs: string | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  async list(): Promise<SecretList> {
    const asOf = new Date();
    const { dev, ino } = await stat(this.#path);
    const names = (await readdir(this.#path)).filter((name) => /\.(ya?ml|json)$/.test(name)).toSorted();
    const files = await this.#settled(names);
    const isUnmounted = names.length === 0 && this.#filledAs !== undefined && this.#filledAs !== `${dev}:${ino}`;
    const isTrusted = names.length > 0 || this.#filledAs === `${dev}:${ino}`;
    if (names.length > 0) this.#filledAs = `${dev}:${ino}`;
    // What an unmounted folder held is kept for the day it comes back.
    if (!isUnmounted) this.#files = files;

    const seen = [...this.#files.values()];
    const problems = seen.flatMap(({ name, fault }) => (fault === undefined ? [] : [this.#problem(name, fault)]));
    if (isUnmounted) problems.push(this.#problem(basename(this.#path), 'another, empty folder is in its place'));
    const unread = seen.filter(({ fault }) => fault !== undefined).map(({ name }) => `${name}#`);
    return {
      secrets: seen.flatMap(({ secrets }) => secrets ?? []),
      problems,
      complete: seen.every(({ secrets }) => secrets !== undefined),
      // A key that was stored without its file's name can be of any file.
      provesGone: ({ uid }) =>
        isTrusted && (unread.length === 0 || (/\.(ya?ml|json)#/.test(uid) && !unread.some((of) => uid.startsWith(of)))),
      asOf: new Date(Math.min(asOf.getTime(), ...seen.map(({ readAtMs }) => readAtMs))),
    };
  }

  /** Reads all files; those that may still be written to are read twice and must not have changed meanwhile. */
  async #settled(names: readonly string[]): Promise<ReadonlyMap<string, SeenFile>> {
    const isFirst = this.#filledAs === undefined;
    const before = new Map<string, string>();
    for (const name of names) before.set(name, await signature(join(this.#path, name), isFirst));
    if (names.some((name) => this.#mayGrow(name, before.get(name)))) await pause(QUIET_MS);
    const files = new Map<string, SeenFile>();
    for (const name of names) files.set(name, await this.#read(name, before.get(name)));
    return files;
  }

  /** A file seen whole just like this needs no second look. */
  #mayGrow(name: string, now: string | undefined): boolean {
    return now !== SETTLED_LONG_AGO && this.#files.get(name)?.signature !== now;
  }

  async #read(name: string, before: string | undefined): Promise<SeenFile> {
    const file = join(this.#path, name);
    const readAtMs = Date.now();
    try {
      const secrets = await readManifest(file);
      const now = await signature(file, false);
      if (before !== SETTLED_LONG_AGO && now !== before) throw new Error('it is being written');
      return { name, signature: now, secrets, readAtMs, fault: undefined };
    } catch (error) {
      const last = this.#files.get(name);
      const fault =
        (error as NodeJS.ErrnoException).code ?? (error instanceof Error ? reasonOf(error) : 'unknown error');
      return { name, signature: undefined, secrets: last?.secrets, readAtMs: last?.readAtMs ?? readAtMs, fault };
    }
  }

  #problem(name: string, fault: string): Problem {
    return {
      source: { namespace: 'directory', name, uid: join(this.#path, name) },
      code: 'unreadable_file',
      message: `${name} could not be read as Kubernetes manifests (${fault}); the keys it held stay as they were`,
    };
  }
}

interface SeenFile {
  readonly name: string;
  /** Undefined while it cannot be read. */
  readonly signature: string | undefined;
  /** What it held when it was last whole; undefined before. */
  readonly secrets: readonly PartnerSecret[] | undefined;
  readonly readAtMs: number;
  readonly fault: string | undefined;
}

/** Stands for any signature of a file that rested before this process first looked. */
const SETTLED_LONG_AGO = 'settled';

/** Changes whenever the file is written or replaced. A file that is not there has one, too. */
async function signature(file: string, mayTrustAge: boolean): Promise<string> {
  try {
    const { ino, size, mtimeMs } = await stat(file);
    return mayTrustAge && Math.abs(Date.now() - mtimeMs) > QUIET_MS ? SETTLED_LONG_AGO : `${ino}:${size}:${mtimeMs}`;
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}

/** Our own messages hold nothing of the file; those of a parser quote it. */
function reasonOf(error: Error): string {
  return error.constructor === Error || error instanceof RangeError ? error.message : error.name;
}

/** Throws when a document is no YAML, or calls itself a partner Secret and is not well-formed. */
async function readManifest(file: string): Promise<PartnerSecret[]> {
  const text = await readFile(file, 'utf8');
  if (text.length > MAX_FILE_BYTES) throw new RangeError('file too large');
  // An editor or a copy empties a file before it fills it.
  if (text.trim() === '') throw new Error('it is empty');
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
      // Says which file the key came from, so that another file can prove nothing about it.
      uid: `${basename(file)}#${metadata.name}`,
      createdAt: metadata.creationTimestamp === undefined ? undefined : new Date(metadata.creationTimestamp),
      partnerId: metadata.labels?.[PARTNER_LABEL] ?? '',
      status: metadata.annotations?.[STATUS_ANNOTATION],
      annotations: termAnnotations(metadata.annotations),
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
