/** Reads partner Secrets from a folder of manifests, without Kubernetes. */
import { watch as watchFolder } from 'node:fs';
import { readFile, readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import { PARTNER_LABEL, type PartnerSecret, type Problem } from '../partner/key-secret.ts';
import {
  readSecret,
  type SecretList,
  type SecretSource,
  type SecretView,
} from './secret-source.ts';

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
      return new FollowedFolder(path, clock);
    },
  };
}

interface SeenFile {
  /** Undefined if it could not be read. */
  readonly signature: string | undefined;
  /** Those of the last version that could be read. */
  readonly secrets: readonly PartnerSecret[] | undefined;
  readonly fault?: string;
}

class FollowedFolder implements SecretView {
  readonly everyMs = POLL_EVERY_MS;
  readonly #path: string;
  readonly #clock: Clock;
  #files: ReadonlyMap<string, SeenFile> = new Map();
  #asOf = new Date(0);

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  faults(): readonly string[] {
    return [];
  }

  /** Keeps a file's last complete version while it is unreadable. */
  async list(): Promise<SecretList> {
    const asOf = this.#clock.now();
    let reason = 'it is empty, or not mounted';
    const found = await readdir(this.#path).catch((error: unknown) => {
      reason = reasonOf(error);
      return [];
    });
    const names = found.filter((name) => /\.(ya?ml|json)$/.test(name)).toSorted();
    const isThere = names.length > 0;
    const faults = new Map<string, string>();
    if (isThere) this.#files = await this.#read(names);
    else faults.set(basename(this.#path), reason);
    for (const [name, { fault }] of this.#files) if (fault !== undefined) faults.set(name, fault);
    if (faults.size === 0) this.#asOf = asOf;

    const seen = [...this.#files.values()];
    return {
      secrets: seen.flatMap(({ secrets }) => secrets ?? []),
      problems: [...faults].map(([name, fault]) => this.#problem(name, fault)),
      complete: isThere && seen.every(({ secrets }) => secrets !== undefined),
      provesGone: ({ uid }) => {
        // Any file may hold a key that came from another source.
        const file = /^(.+\.(?:ya?ml|json))#/.exec(uid)?.[1];
        return isThere && (faults.size === 0 || (file !== undefined && !faults.has(file)));
      },
      asOf: this.#asOf,
    };
  }

  async #read(names: readonly string[]): Promise<ReadonlyMap<string, SeenFile>> {
    const signatures = new Map<string, string>();
    for (const name of names) signatures.set(name, await signatureOf(join(this.#path, name)));
    const unchanged = (name: string): SeenFile | undefined => {
      const last = this.#files.get(name);
      return last?.signature === signatures.get(name) ? last : undefined;
    };
    if (names.some((name) => unchanged(name) === undefined)) await pause(QUIET_MS);
    const files = new Map<string, SeenFile>();
    for (const [name, signature] of signatures)
      files.set(name, unchanged(name) ?? (await this.#readFile(name, signature)));
    return files;
  }

  async #readFile(name: string, signature: string): Promise<SeenFile> {
    const file = join(this.#path, name);
    try {
      if ((await stat(file)).size > MAX_FILE_BYTES) throw new RangeError('file too large');
      const secrets = readManifest(name, await readFile(file, 'utf8'));
      if ((await signatureOf(file)) !== signature) throw new RangeError('it is being written');
      return { signature, secrets };
    } catch (error) {
      const { secrets } = this.#files.get(name) ?? {};
      return { signature: undefined, secrets, fault: reasonOf(error) };
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

function readManifest(file: string, text: string): PartnerSecret[] {
  // Editors empty a file before they fill it.
  if (text.trim() === '') throw new RangeError('it is empty');
  const documents = parseAllDocuments(text);
  return (Array.isArray(documents) ? documents : []).flatMap((document) => {
    if (document.errors.length > 0) throw new SyntaxError('not YAML');
    const value = document.toJS() as Manifest | null;
    if (value?.kind !== 'Secret' || value.metadata?.labels?.[PARTNER_LABEL] === undefined)
      return [];
    const secret = readSecret(value);
    // No other file can prove that this key is gone.
    return [{ ...secret, uid: `${file}#${secret.name}` }];
  });
}

/** As far as it says whether the rest is read. */
interface Manifest {
  readonly kind?: unknown;
  readonly metadata?: { readonly labels?: Readonly<Record<string, unknown>> | null } | null;
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
