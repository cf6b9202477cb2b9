/** Reads partner Secrets from a folder of manifests, without Kubernetes. */
import { watch as watchFolder } from 'node:fs';
import { readFile, readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { parseAllDocuments } from 'yaml';
import type { Clock } from '../platform/process/clock.ts';
import { pause } from '../platform/process/deadline.ts';
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

/** A list for which every file could be read. */
interface Good {
  readonly secrets: readonly PartnerSecret[];
  readonly asOf: Date;
  readonly signatures: readonly string[];
}

class FollowedFolder implements SecretView {
  readonly everyMs = POLL_EVERY_MS;
  readonly #path: string;
  readonly #clock: Clock;
  #good: Good = { secrets: [], asOf: new Date(0), signatures: [] };

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  faults(): readonly string[] {
    return [];
  }

  /** Lists the whole folder; while a file cannot be read, the last complete list. */
  async list(): Promise<SecretList> {
    const faults = new Map<string, string>();
    const read = await this.#read(faults);
    const complete = faults.size === 0;
    if (complete) this.#good = read;
    const { secrets, asOf } = this.#good;
    const problems = [...faults].map(([name, fault]) => this.#problem(name, fault));
    return { secrets, problems, complete, asOf };
  }

  async #read(faults: Map<string, string>): Promise<Good> {
    const asOf = this.#clock.now();
    let reason = 'it is empty, or not mounted';
    const found = await readdir(this.#path).catch((error: unknown) => {
      reason = reasonOf(error);
      return [];
    });
    const names = found.filter((name) => /\.(ya?ml|json)$/.test(name)).toSorted();
    if (names.length === 0) faults.set(basename(this.#path), reason);
    const files = names.map((name) => join(this.#path, name));
    const signatures = await Promise.all(files.map(signatureOf));
    if (isDeepStrictEqual(signatures, this.#good.signatures)) return { ...this.#good, asOf };

    await pause(QUIET_MS);
    const secrets: PartnerSecret[] = [];
    for (const [index, file] of files.entries()) {
      const name = names[index]!;
      try {
        if ((await stat(file)).size > MAX_FILE_BYTES) throw new RangeError('file too large');
        secrets.push(...readManifest(name, await readFile(file, 'utf8')));
        if ((await signatureOf(file)) !== signatures[index])
          throw new RangeError('it is being written');
      } catch (error) {
        faults.set(name, reasonOf(error));
      }
    }
    return { secrets, asOf, signatures };
  }

  #problem(name: string, fault: string): Problem {
    return {
      source: { namespace: 'directory', name, uid: join(this.#path, name) },
      code: 'unreadable_file',
      message: `${name} could not be read as Kubernetes manifests (${fault}); until then all keys stay as they were`,
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
    return [{ ...secret, uid: `${file}#${secret.name}` }];
  });
}

/** The fields that decide whether the rest is read. */
interface Manifest {
  readonly kind?: unknown;
  readonly metadata?: { readonly labels?: Readonly<Record<string, unknown>> | null } | null;
}

async function signatureOf(file: string): Promise<string> {
  try {
    const { ino, size, mtimeMs } = await stat(file);
    return `${file}:${ino}:${size}:${mtimeMs}`;
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}

/** Leaves out a parser's message, which may quote a key from the file. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown error';
  return (
    (error as NodeJS.ErrnoException).code ??
    (error instanceof RangeError ? error.message : error.name)
  );
}
