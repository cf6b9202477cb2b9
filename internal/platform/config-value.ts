/** Reads a setting from its variable or, for a secret, from the file in `NAME_FILE`. */
import { readFileSync } from 'node:fs';

export type Environment = Readonly<Record<string, string | undefined>>;

/** The fault is already reported. */
export const UNREADABLE = Symbol('unreadable');

/** Returns undefined if `name` is unset. The `faults` contain no value. */
export function rawValue(
  name: string,
  mayBeFile: boolean,
  environment: Environment,
  faults: string[],
): string | undefined | typeof UNREADABLE {
  const given = environment[name] === '' ? undefined : environment[name];
  const file = environment[`${name}_FILE`];
  if (!mayBeFile || file === undefined || file === '') return given;
  if (given !== undefined) {
    faults.push(`${name}: is set twice, as ${name} and as ${name}_FILE`);
    return UNREADABLE;
  }
  try {
    return readFileSync(file, 'utf8').replace(/\r?\n$/, '');
  } catch (error) {
    faults.push(
      `${name}_FILE: cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown error'}): ${file}`,
    );
    return UNREADABLE;
  }
}
