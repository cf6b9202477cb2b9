/** Reads partner Secrets from a folder of manifests, without Kubernetes. */
import { watch as watchFolder } from 'node:fs';
import { readFile, readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import type { Clock } from '../platform/process/clock.ts';
import { pause } from '../platform/process/deadline.ts';
import type { Fault } from '../platform/process/fault.ts';
import { PARTNER_LABEL, type PartnerSecret, type Problem } from '../partner/key-secret.ts';
import { isPartner, type PartnerResource, readPartner } from '../partner/partner-resource.ts';
import {
  readSecret,
  type SecretList,
  type SecretSource,
  type SecretView,
} from './secret-source.ts';

const MAX_FILE_BYTES = 1024 * 1024;
const FILES_MAX = 100_000;
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

/** What a file held when it could last be read. */
interface ReadFile {
  readonly signature: string;
  readonly secrets: readonly PartnerSecret[];
  readonly partners: readonly PartnerResource[];
}

class FollowedFolder implements SecretView {
  readonly everyMs = POLL_EVERY_MS;
  readonly #path: string;
  readonly #clock: Clock;
  /** By name, sorted. */
  #files: ReadonlyMap<string, ReadFile> = new Map();
  #asOf = new Date(0);

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  faults(): readonly Fault[] {
    return [];
  }

  /**
   * Lists the whole folder. What a file that cannot be read held stays as it was; if there is no
   * file that can be read, the list is incomplete.
   */
  async list(): Promise<SecretList> {
    const asOf = this.#clock.now();
    const [names, reason] = await this.#names();
    const faults = new Map<string, string>();
    const files = await this.#read(names, faults);
    const complete = names.length > faults.size;
    if (complete) [this.#files, this.#asOf] = [files, asOf];
    const problems =
      names.length === 0
        ? [this.#problem(basename(this.#path), reason, 'all keys stay')]
        : [...faults].map(([name, fault]) => this.#problem(name, fault, 'its keys stay'));
    return {
      secrets: [...this.#files.values()].flatMap(({ secrets }) => secrets),
      partners: [...this.#files.values()].flatMap(({ partners }) => partners),
      lacksPartners: [...faults.keys()].some((name) => !this.#files.has(name)),
      problems,
      complete,
      asOf: this.#asOf,
      isUnread: ({ uid }) => {
        const name = fileOf(uid);
        return faults.has(name) && !this.#files.has(name);
      },
    };
  }

  async #names(): Promise<readonly [names: readonly string[], reason: string]> {
    try {
      const found = await readdir(this.#path);
      const names = found.filter((name) => /\.(ya?ml|json)$/.test(name)).toSorted();
      return names.length > FILES_MAX
        ? [[], `more than ${FILES_MAX} files`]
        : [names, 'it is empty, or not mounted'];
    } catch (error) {
      return [[], reasonOf(error)];
    }
  }

  /** Reads only files that changed. */
  async #read(
    names: readonly string[],
    faults: Map<string, string>,
  ): Promise<ReadonlyMap<string, ReadFile>> {
    const files = new Map<string, ReadFile>();
    const signatures = await Promise.all(names.map((name) => this.#signatureOf(name)));
    const isKnown = names.map((name, at) => this.#files.get(name)?.signature === signatures[at]);
    if (isKnown.includes(false)) await pause(QUIET_MS);
    for (const [at, name] of names.entries()) {
      const known = this.#files.get(name);
      try {
        files.set(name, isKnown[at] ? known! : await this.#readFile(name, signatures[at]!));
      } catch (error) {
        faults.set(name, reasonOf(error));
        if (known !== undefined) files.set(name, { ...known, signature: '' });
      }
    }
    return files;
  }

  async #readFile(name: string, signature: string): Promise<ReadFile> {
    const path = join(this.#path, name);
    const found = await stat(path);
    // Opening a pipe would wait for a writer.
    if (!found.isFile()) throw new RangeError('it is no file');
    if (found.size > MAX_FILE_BYTES) throw new RangeError('file too large');
    const held = readManifest(name, await readFile(path, 'utf8'));
    if ((await this.#signatureOf(name)) !== signature) throw new RangeError('it is being written');
    return { signature, ...held };
  }

  async #signatureOf(name: string): Promise<string> {
    try {
      const { ino, size, mtimeMs } = await stat(join(this.#path, name));
      return `${ino}:${size}:${mtimeMs}`;
    } catch (error) {
      return String((error as NodeJS.ErrnoException).code);
    }
  }

  #problem(name: string, fault: string, stay: string): Problem {
    return {
      source: { namespace: 'directory', name, uid: join(this.#path, name) },
      code: 'unreadable_file',
      message: `${name} could not be read as Kubernetes manifests (${fault}); until then ${stay} as they were`,
    };
  }
}

const uidOf = (file: string, name: string): string => `${file}#${name}`;
const fileOf = (uid: string): string => /^(.*?\.(?:ya?ml|json))#/.exec(uid)?.[1] ?? '';

function readManifest(file: string, text: string): Omit<ReadFile, 'signature'> {
  const documents = parseAllDocuments(text);
  const values = (Array.isArray(documents) ? documents : []).flatMap((document) => {
    if (document.errors.length > 0) throw new SyntaxError('not YAML');
    return (document.toJS() as Manifest | null) ?? [];
  });
  // Editors empty a file before they fill it.
  if (values.length === 0) throw new RangeError('it is empty');
  const secrets: PartnerSecret[] = [];
  const partners: PartnerResource[] = [];
  for (const value of values) {
    if (typeof value.kind !== 'string')
      throw new RangeError('it has something that is no manifest');
    const uid = uidOf(file, String(value.metadata?.name));
    if (isPartner(value)) partners.push({ ...readPartner(value), uid });
    if (value.kind === 'Secret' && value.metadata?.labels?.[PARTNER_LABEL] !== undefined)
      secrets.push({ ...readSecret(value), uid });
  }
  return { secrets, partners };
}

/** The fields that decide whether the rest is read. */
interface Manifest {
  readonly apiVersion?: unknown;
  readonly kind?: unknown;
  readonly metadata?: {
    readonly name?: unknown;
    readonly labels?: Readonly<Record<string, unknown>> | null;
  } | null;
}

/** Leaves out a parser's message, which may quote a key from the file. */
function reasonOf(error: unknown): string {
  const { code, name } = error as NodeJS.ErrnoException;
  return code ?? (error instanceof RangeError ? error.message : name);
}
