/**
 * Where a setting's value comes from: its variable or, for a secret, the mounted file that
 * `NAME_FILE` names.
 */
import { readFileSync } from 'node:fs';

export type Environment = Readonly<Record<string, string | undefined>>;

/** Stands for a value that a fault has been told of already. */
export const UNREADABLE = Symbol('unreadable');

/**
 * The text of setting `name`; undefined when it is not set. Adds to `faults` what is wrong, without
 * any value.
 */
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
