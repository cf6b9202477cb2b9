/** A database whose client freezes before one of its calls. */
import type { Db } from 'mongodb';

/** Calls that send nothing yet. */
const BUILDS: readonly (string | symbol)[] = ['collection', 'find', 'sort', 'limit'];

/** Runs `meanwhile` before the call `at`, counted from 1. */
export function standingStill(
  real: Db,
  at: number,
  meanwhile: () => Promise<void>,
): { readonly db: Db; readonly stood: () => boolean } {
  let calls = 0;
  const slowed = <T extends object>(target: T): T =>
    new Proxy(target, {
      get(of, name) {
        const value: unknown = Reflect.get(of, name, of);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]): unknown => {
          const call = (): unknown => Reflect.apply(value, of, args);
          if (BUILDS.includes(name)) return slowed(call() as object);
          calls += 1;
          return calls === at ? meanwhile().then(call) : call();
        };
      },
    });
  return { db: slowed(real), stood: () => calls >= at };
}
