/**
 * `make lock`: remakes the lock files so that `npm ci` works from any registry and checks every
 * package.
 *
 * npm binds a lock file to the registry it was made with in two ways: by the address of each
 * package, which goes here, and by silence about optional packages for other platforms that this
 * registry does not hold. The latter cannot be corrected here, as nobody else tells their hashes: take
 * the newest version of the parent whose packages are all there (docs/decisions/0007).
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

interface Lock {
  readonly packages: Record<
    string,
    {
      resolved?: string;
      integrity?: string;
      /** A workspace, whose folder is then `resolved`. */
      link?: boolean;
      optionalDependencies?: Record<string, string>;
    }
  >;
}

/** Not the project itself, nor a workspace or the link to it. */
const isFetched = (path: string, link = false): boolean => path.includes('node_modules/') && !link;

/** What `npm ci` could not check or find on some platform. */
export function lockFaults({ packages }: Lock): string[] {
  return Object.entries(packages).flatMap(
    ([path, { integrity, resolved, link, optionalDependencies = {} }]) => [
      ...(isFetched(path, link) && integrity === undefined ? [`${path} has no integrity`] : []),
      ...(resolved === undefined || link ? [] : [`${path} is bound to a registry`]),
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

/** The folders with a lock file: the project's, and the one of the Node that with-node.sh fetches. */
export const LOCKED_FOLDERS = ['.', 'deploy/local/node'];

if (import.meta.main) {
  for (const folder of LOCKED_FOLDERS) {
    execFileSync(
      'npm',
      ['install', '--package-lock-only', '--ignore-scripts', '--no-audit', '--no-fund'],
      { stdio: 'inherit', cwd: folder },
    );
    const file = join(folder, 'package-lock.json');
    const lock = JSON.parse(readFileSync(file, 'utf8')) as Lock;
    for (const locked of Object.values(lock.packages)) if (!locked.link) delete locked.resolved;
    writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`);
    const faults = lockFaults(lock);
    console.log(
      [`${file}: ${Object.keys(lock.packages).length} packages locked`, ...faults].join('\n'),
    );
    if (faults.length > 0) process.exitCode = 1;
  }
}
