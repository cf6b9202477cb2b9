/**
 * `make lock`: remakes package-lock.json so that `npm ci` works from any registry, a partial mirror included.
 *
 * npm leaves two things in a lock file that bind it to the registry it was made with: the address of each package, and
 * silence about optional packages for other platforms that this registry does not hold, on which `npm ci` then fails.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

interface LockedPackage {
  version?: string;
  resolved?: string;
  dev?: boolean;
  optional?: boolean;
  os?: string[];
  cpu?: string[];
  libc?: string[];
  optionalDependencies?: Record<string, string>;
}

const LOCK = 'package-lock.json';
const OS = /(?:^|[-/])(darwin|win32|linux|android|freebsd|openharmony)/;
const CPU = /-(arm64|x64|arm|ia32|ppc64|riscv64|s390x|loong64)/;
const LIBC = /-(musl|gnu)/;

execFileSync('npm', ['install', '--package-lock-only', '--ignore-scripts', '--omit-lockfile-registry-resolved=false'], {
  stdio: 'inherit',
});
const lock = JSON.parse(readFileSync(LOCK, 'utf8')) as { packages: Record<string, LockedPackage> };
for (const locked of Object.values(lock.packages)) delete locked.resolved;

let added = 0;
for (const parent of Object.values(lock.packages)) {
  for (const [name, version] of Object.entries(parent.optionalDependencies ?? {})) {
    const path = `node_modules/${name}`;
    const os = OS.exec(name)?.[1];
    if (os === undefined || lock.packages[path] !== undefined || !/^\d/.test(version)) continue;
    const cpu = CPU.exec(name)?.[1];
    const libc = LIBC.exec(name)?.[1]?.replace('gnu', 'glibc');
    lock.packages[path] = {
      version,
      ...(parent.dev === true ? { dev: true } : {}),
      optional: true,
      os: [os],
      ...(cpu === undefined ? {} : { cpu: [cpu] }),
      ...(libc === undefined ? {} : { libc: [libc] }),
    };
    added += 1;
  }
}
lock.packages = Object.fromEntries(Object.entries(lock.packages).toSorted(([one], [other]) => (one < other ? -1 : 1)));
writeFileSync(LOCK, `${JSON.stringify(lock, null, 2)}\n`);
console.log(`${Object.keys(lock.packages).length} packages locked, ${added} of them known by name and version only`);
