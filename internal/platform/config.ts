/** Reads settings from the environment; no other file does. */
/* oxlint-disable node/no-process-env -- this is the file that may */
import type { z } from 'zod';
import { ConfigError } from './config-error.ts';
import { UNREADABLE, rawValue, type Environment, type Found } from './config-value.ts';

export interface Setting<Process extends string = string> {
  readonly schema: z.ZodType;
  readonly usedBy: readonly Process[];
  readonly about: string;
  /** Never printed; may come from the file in `NAME_FILE`. */
  readonly secret?: true;
  /** No promise depends on it: a value that is refused is told, and the default counts. */
  readonly lenient?: true;
}

type Settings = Readonly<Record<string, Setting>>;

/** An empty variable counts as unset. Throws `ConfigError` with every fault and no secret. */
export function load(
  settings: Settings,
  options: {
    readonly process: string;
    /** Checks settings that depend on each other. */
    readonly relationFaults: (config: Readonly<Record<string, unknown>>) => readonly string[];
    readonly environment?: Environment;
    /** Filled in. */
    readonly found?: Found;
  },
): Readonly<Record<string, unknown>> {
  const { process, environment = globalThis.process.env, found } = options;
  const faults: string[] = [];
  const config: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(settings)) {
    if (!setting.usedBy.includes(process)) continue;
    const raw = rawValue(name, setting.secret === true, environment, faults, found?.files);
    if (raw === UNREADABLE) continue;
    const parsed = setting.schema.safeParse(raw);
    const wrong = parsed.error?.issues.map((issue) => `${name}: ${issue.message}`) ?? [];
    if (parsed.success) config[name] = parsed.data;
    else if (raw === undefined) faults.push(`${name}: is required (${setting.about})`);
    else if (setting.lenient !== true) faults.push(...wrong);
    else {
      config[name] = setting.schema.parse(undefined);
      found?.ignored.push(...wrong);
    }
  }
  faults.push(...options.relationFaults(config));
  if (faults.length > 0) throw new ConfigError(process, faults);
  return Object.freeze(config);
}

/** For a library that reads the environment by itself. */
export function setEnvironment(variables: Readonly<Record<string, string>>): void {
  Object.assign(globalThis.process.env, variables);
}

export function printable(settings: Settings, config: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(config).map(([name, value]) => [
      name,
      settings[name]?.secret === true && value !== undefined ? true : value,
    ]),
  );
}

export interface Described {
  readonly name: string;
  readonly default: string;
  readonly usedBy: string;
  readonly secret: boolean;
  readonly about: string;
}

/** For generated documentation; `processes` is the number that becomes "all". */
export function describe(settings: Settings, processes: number): Described[] {
  return Object.entries(settings).map(([name, setting]) => {
    const whenUnset = setting.schema.safeParse(undefined);
    return {
      name,
      default: whenUnset.success ? [whenUnset.data].flat().join(',') : 'required',
      usedBy: setting.usedBy.length === processes ? 'all' : setting.usedBy.join(', '),
      secret: setting.secret === true,
      about: setting.about,
    };
  });
}

export function readTerminalEnvironment(environment: Environment = process.env): {
  readonly user: string | undefined;
  readonly keysNamespace: string;
  readonly inPod: boolean;
} {
  // This is the chart's default.
  const keysNamespace = environment['WATCH_NAMESPACES']?.trim() || 'partner-ingest-keys';
  return {
    user: environment['USER'],
    keysNamespace,
    inPod: environment['KUBERNETES_SERVICE_HOST'] !== undefined,
  };
}
