/**
 * `make lock`: remakes package-lock.json so that `npm ci` works from any registry and checks every
 * package.
 *
 * npm binds a lock file to the registry it was made with in two ways: by the address of each
 * package, which goes here, and by silence about optional packages for other platforms that this
 * registry does not hold. The latter cannot be corrected here, as nobody else tells their hashes: take
 * the newest version of the parent whose packages are all there (docs/decisions/0007).
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

const LOCK = 'package-lock.json';

interface Lock {
  readonly packages: Record<
    string,
    {
      resolved?: string;
      integrity?: string;
      link?: boolean;
      optionalDependencies?: Record<string, string>;
    }
  >;
}

/** What `npm ci` could not check or find on some platform. */
export function lockFaults({ packages }: Lock): string[] {
  return Object.entries(packages).flatMap(
    ([path, { integrity, resolved, optionalDependencies = {} }]) => [
      ...(path !== '' && integrity === undefined ? [`${path} has no integrity`] : []),
      ...(resolved === undefined ? [] : [`${path} is bound to a registry`]),
      ...Object.keys(optionalDependencies)
        .filter(
          (name) =>
            packages[`node_modules/${name}`] === undefined &&
            packages[`${path}/node_modules/${name}`] === undefined,
        )
        .map((name) => `${name}, which ${path} may need, is not there`),
    ],
  );
}

if (import.meta.main) {
  execFileSync(
    'npm',
    ['install', '--package-lock-only', '--ignore-scripts', '--no-audit', '--no-fund'],
    {
      stdio: 'inherit',
    },
  );
  const lock = JSON.parse(readFileSync(LOCK, 'utf8')) as Lock;
  for (const locked of Object.values(lock.packages)) delete locked.resolved;
  writeFileSync(LOCK, `${JSON.stringify(lock, null, 2)}\n`);
  const faults = lockFaults(lock);
  console.log([`${Object.keys(lock.packages).length} packages locked`, ...faults].join('\n'));
  if (faults.length > 0) process.exitCode = 1;
}
