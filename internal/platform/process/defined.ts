/** Removes undefined fields, for types whose optional fields must be absent. */
export function defined<T extends object>(
  fields: T,
): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const kept: { [K in keyof T]?: Exclude<T[K], undefined> } = {};
  for (const name of Object.keys(fields) as (keyof T)[]) {
    const value = fields[name];
    if (value !== undefined) kept[name] = value as Exclude<T[keyof T], undefined>;
  }
  return kept;
}
