/** Reads a setting from its variable or, for a secret, from the file in `NAME_FILE`. */
import { readFileSync, statSync } from 'node:fs';

/** What was found beside the values. */
export interface Found {
  /** Each value of a lenient setting that does not count. */
  readonly ignored: string[];
  /** When the file of each secret was written, by `NAME_FILE`. */
  readonly files: Record<string, string>;
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** The fault is already reported. */
export const UNREADABLE = Symbol('unreadable');

/** Returns undefined if `name` is unset. The `faults` contain no value. */
export function rawValue(
  name: string,
  mayBeFile: boolean,
  environment: Environment,
  faults: string[],
  files?: Found['files'],
): string | undefined | typeof UNREADABLE {
  const given = environment[name] === '' ? undefined : environment[name];
  const file = environment[`${name}_FILE`];
  if (!mayBeFile || file === undefined || file === '') return given;
  if (given !== undefined) {
    faults.push(`${name}: is set twice, as ${name} and as ${name}_FILE`);
    return UNREADABLE;
  }
  try {
    if (files !== undefined) files[`${name}_FILE`] = statSync(file).mtime.toISOString();
    return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    faults.push(
      `${name}_FILE: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown error'}): ${file}`,
    );
    return UNREADABLE;
  }
}
