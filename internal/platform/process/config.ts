/** Reads settings from the environment; no other file does. */
/* oxlint-disable node/no-process-env -- this is the file that may */
import { readFileSync, statSync } from 'node:fs';
import type { z } from 'zod';

export interface Setting<Process extends string = string> {
  readonly schema: z.ZodType;
  readonly usedBy: readonly Process[];
  readonly about: string;
  /** Never printed; may come from a file whose path is in `NAME_FILE`. */
  readonly secret?: true;
  /** If invalid, it is reported and the default is used: no promise depends on it. */
  readonly lenient?: true;
  /** Its name in small letters counts, too, and first, as for other programs. */
  readonly anyCase?: true;
}

type Marks = Pick<Setting, 'secret' | 'lenient' | 'anyCase'>;

/** A row of a table of settings. */
export const setting = <const UsedBy extends readonly string[], Schema extends z.ZodType>(
  usedBy: UsedBy,
  schema: Schema,
  about: string,
  marks: Marks = {},
) => ({ usedBy, schema, about, ...marks });

export const secret = <const UsedBy extends readonly string[], Schema extends z.ZodType>(
  usedBy: UsedBy,
  schema: Schema,
  about: string,
  marks: Marks = {},
) => setting(usedBy, schema, about, { ...marks, secret: true });

export type Environment = Readonly<Record<string, string | undefined>>;

/** Noted by `load` besides the values. */
export interface FoundBeside {
  /** Faults of lenient settings, whose defaults are used. */
  readonly ignored: string[];
  /** When each secret's file was written, by its variable, such as `LINK_SECRET_FILE`. */
  readonly files: Record<string, string>;
}

/** A configuration that cannot be used, with all faults in one message, which holds no secret. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly faults: readonly string[];
  constructor(process: string, faults: readonly string[], options?: ErrorOptions) {
    const lines = faults.map((fault) => `  ${fault}`).join('\n');
    super(`${process}: ${faults.length} fault(s) in the configuration:\n${lines}`, options);
    this.faults = faults;
  }
}

/** An empty variable counts as unset. Throws `ConfigError` with every fault. */
export function load(
  settings: Readonly<Record<string, Setting>>,
  options: {
    readonly process: string;
    /** Checks settings that depend on each other. */
    readonly relationFaults: (config: Readonly<Record<string, unknown>>) => readonly string[];
    readonly environment?: Environment | undefined;
    /** Filled in by `load`. */
    readonly found?: FoundBeside | undefined;
  },
): Readonly<Record<string, unknown>> {
  const { process, environment = globalThis.process.env, found } = options;
  const faults: string[] = [];
  const config: Record<string, unknown> = {};
  for (const [name, row] of Object.entries(settings)) {
    if (!row.usedBy.includes(process)) continue;
    const file = row.secret === true ? environment[`${name}_FILE`] : undefined;
    const small = row.anyCase === true ? environment[name.toLowerCase()] : undefined;
    let raw = small || environment[name] || undefined;
    if (file && raw !== undefined) {
      faults.push(`${name}: is set twice, as ${name} and as ${name}_FILE`);
      continue;
    }
    try {
      if (file) raw = readSecret(file, `${name}_FILE`, found);
    } catch (error) {
      const { code = 'unknown error' } = error as NodeJS.ErrnoException;
      faults.push(`${name}_FILE: cannot be read (${code}): ${file}`);
      continue;
    }
    const parsed = row.schema.safeParse(raw);
    const wrong = parsed.error?.issues.map((issue) => `${name}: ${issue.message}`) ?? [];
    if (parsed.success) config[name] = parsed.data;
    else if (raw === undefined) faults.push(`${name}: is required (${row.about})`);
    else if (row.lenient !== true) faults.push(...wrong);
    else {
      config[name] = row.schema.parse(undefined);
      found?.ignored.push(...wrong);
    }
  }
  faults.push(...options.relationFaults(config));
  if (faults.length > 0) throw new ConfigError(process, faults);
  return Object.freeze(config);
}

function readSecret(file: string, name: string, found: FoundBeside | undefined): string {
  if (found !== undefined) found.files[name] = statSync(file).mtime.toISOString();
  return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
}

/**
 * The name of a process in traces; undefined without a collector. OpenTelemetry's SDK reads the
 * rest.
 */
export function tracedAs(process: string, environment: Environment = globalThis.process.env) {
  const {
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: tracesEndpoint,
    OTEL_SERVICE_NAME: name,
  } = environment;
  return endpoint || tracesEndpoint ? name || `partner-ingest-${process}` : undefined;
}

/** The authorities that Node reads once, at its start. */
export function authorityFiles(
  environment: Environment = process.env,
): readonly (readonly [name: string, file: string])[] {
  const { NODE_EXTRA_CA_CERTS: file } = environment;
  return file ? [['NODE_EXTRA_CA_CERTS', file]] : [];
}

export function readTerminalEnvironment(environment: Environment = process.env): {
  readonly user: string | undefined;
  readonly keysNamespace: string;
  readonly followsPartners: boolean;
  readonly inPod: boolean;
} {
  // This is the chart's default.
  const keysNamespace = environment['WATCH_NAMESPACES']?.trim() || 'partner-ingest-keys';
  return {
    user: environment['USER'],
    keysNamespace,
    followsPartners: environment['WATCH_PARTNERS']?.trim() === 'true',
    inPod: environment['KUBERNETES_SERVICE_HOST'] !== undefined,
  };
}
