/** Every combination of these values, one of each list. */
export function combinations<T extends object>(lists: {
  readonly [Key in keyof T]: readonly T[Key][];
}): T[] {
  let found: object[] = [{}];
  for (const [key, values] of Object.entries<readonly unknown[]>(lists))
    found = found.flatMap((one) => values.map((value) => ({ ...one, [key]: value })));
  return found as T[];
}
