/** Reads partner Secrets from a folder of manifests, without Kubernetes. */
import { watch as watchFolder } from 'node:fs';
import { readFile, readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { z } from 'zod';
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import { PARTNER_LABEL, type PartnerSecret, type Problem } from '../partner/key-secret.ts';
import { readSecret } from './read-secret.ts';
import type { SecretList, SecretSource } from './secret-source.ts';

const MAX_FILE_BYTES = 1024 * 1024;
/** Network volumes send no file events. */
const POLL_EVERY_MS = 2_000;
/** Editors write in several steps. */
const SETTLE_MS = 50;
/** A file that changes within this time is being written. */
const QUIET_MS = 200;

export function directorySource(path: string, clock: Clock): SecretSource {
  return {
    follow(onChange, signal) {
      let settling: NodeJS.Timeout | undefined;
      const changed = (): void => {
        clearTimeout(settling);
        settling = setTimeout(onChange, SETTLE_MS);
      };
      try {
        const watcher = watchFolder(path, { signal }, changed);
        // Removing the folder ends the events, but not polling.
        watcher.on('error', () => watcher.close());
      } catch {}
      signal.addEventListener('abort', () => clearTimeout(settling));
      const folder = new FollowedFolder(path, clock);
      return { list: () => folder.list(), faults: () => [], everyMs: POLL_EVERY_MS };
    },
  };
}

interface SeenFile {
  readonly signature: string | undefined;
  readonly secrets: readonly PartnerSecret[] | undefined;
  readonly fault?: string;
}

/** Keeps a file's last complete version while it is unreadable. */
class FollowedFolder {
  readonly #path: string;
  readonly #clock: Clock;
  #files: ReadonlyMap<string, SeenFile> = new Map();
  #asOf = new Date(0);

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  async list(): Promise<SecretList> {
    const asOf = this.#clock.now();
    let reason = 'it is empty, or not mounted';
    const found = await readdir(this.#path).catch((error: unknown) => {
      reason = reasonOf(error);
      return [];
    });
    const names = found.filter((name) => /\.(ya?ml|json)$/.test(name)).toSorted();
    const problems: Problem[] = [];
    if (names.length > 0) this.#files = await this.#read(names);
    else problems.push(this.#problem(basename(this.#path), reason));
    for (const [name, { fault }] of this.#files)
      if (fault !== undefined) problems.push(this.#problem(name, fault));
    if (problems.length === 0) this.#asOf = asOf;

    const seen = [...this.#files.values()];
    const unread = [...this.#files].flatMap(([name, { fault }]) =>
      fault === undefined ? [] : [`${name}#`],
    );
    return {
      secrets: seen.flatMap(({ secrets }) => secrets ?? []),
      problems,
      complete: names.length > 0 && seen.every(({ secrets }) => secrets !== undefined),
      // Any file may hold a key that came from another source.
      provesGone: ({ uid }) =>
        names.length > 0 &&
        (unread.length === 0 ||
          (/\.(ya?ml|json)#/.test(uid) && !unread.some((of) => uid.startsWith(of)))),
      asOf: this.#asOf,
    };
  }

  async #read(names: readonly string[]): Promise<ReadonlyMap<string, SeenFile>> {
    const before = new Map<string, string>();
    for (const name of names) before.set(name, await signatureOf(join(this.#path, name)));
    const changed = names.filter((name) => this.#files.get(name)?.signature !== before.get(name));
    if (changed.length > 0) await pause(QUIET_MS);
    const files = new Map<string, SeenFile>();
    for (const name of names) {
      const last = this.#files.get(name);
      const isKept = last !== undefined && !changed.includes(name);
      files.set(name, isKept ? last : await this.#readFile(name, before.get(name), last));
    }
    return files;
  }

  async #readFile(
    name: string,
    before: string | undefined,
    last: SeenFile | undefined,
  ): Promise<SeenFile> {
    const file = join(this.#path, name);
    try {
      if ((await stat(file)).size > MAX_FILE_BYTES) throw new RangeError('file too large');
      const secrets = readManifest(name, await readFile(file, 'utf8'));
      if ((await signatureOf(file)) !== before) throw new RangeError('it is being written');
      return { signature: before, secrets };
    } catch (error) {
      return { signature: undefined, secrets: last?.secrets, fault: reasonOf(error) };
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

const partnerSchema = z.object({
  kind: z.literal('Secret'),
  metadata: z.object({ labels: z.record(z.string(), z.unknown()) }),
});

function readManifest(file: string, text: string): PartnerSecret[] {
  // Editors empty a file before they fill it.
  if (text.trim() === '') throw new RangeError('it is empty');
  const documents = parseAllDocuments(text);
  return (Array.isArray(documents) ? documents : []).flatMap((document) => {
    if (document.errors.length > 0) throw new SyntaxError('not YAML');
    const value: unknown = document.toJS();
    const candidate = partnerSchema.safeParse(value);
    if (!candidate.success || !(PARTNER_LABEL in candidate.data.metadata.labels)) return [];
    const { secret } = readSecret(value);
    // No other file can prove that this key is gone.
    return [{ ...secret, uid: `${file}#${secret.name}` }];
  });
}

async function signatureOf(file: string): Promise<string> {
  try {
    const { ino, size, mtimeMs } = await stat(file);
    return `${ino}:${size}:${mtimeMs}`;
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}

/** A parser's messages quote the file. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown error';
  return (
    (error as NodeJS.ErrnoException).code ??
    (error instanceof RangeError ? error.message : error.name)
  );
}
