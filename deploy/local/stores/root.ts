// Runs a server inside the cached root file system, in namespaces of its own, so that nothing of it
// stays when it ends.

import { chown, mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Where a server in the root file system sees its data. */
export const DATA_IN_ROOT = '/data';
// A server that was killed a moment ago may still have a process that lets go of the data.
const LOCK_TIMEOUT_S = 10;
const LOCK_FAILURE = 75;

// Takes the lock of the data, in a descriptor that every process of the server inherits: it is held
// until the last has gone. Then the server's own mounts, System V memory and process numbers: when
// its first process ends, the kernel ends the others.
const OUTSIDE = `
# Of a person who became root by su the PATH may lack chroot.
export PATH="$PATH:/usr/sbin:/sbin"
exec 9>"$1.lock"
flock --timeout ${LOCK_TIMEOUT_S} 9 || { echo "another server uses $1"; exit ${LOCK_FAILURE}; }
shift
exec unshare --mount --ipc --pid --fork --kill-child=SIGKILL -- "$@"`;

// The wish to die with the parent comes after the change of user, which would clear it. A stale
// postmaster.pid would say "ready" too early; its number is of another process namespace, so it
// says nothing anyway.
const INSIDE = `
set -e
mount --rbind /dev "$1/dev"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount --bind "$2" "$1${DATA_IN_ROOT}"
rm -f "$2/postmaster.pid"
root=$1 user=$3
shift 3
cd /
# The PATH of this machine means nothing in there.
PATH=/usr/sbin:/usr/bin:/sbin:/bin exec chroot "$root" setpriv --reuid="$user" --regid="$user" --clear-groups --pdeathsig=KILL -- "$@"`;

/**
 * The command that runs `command` as `user` in the root file system, with the directory `data` at
 * /data. It stays the parent of the server, which is its only child. Only one such command works on
 * the same data at a time.
 */
export function inRoot(
  root: string,
  data: string,
  user: string,
  command: readonly string[],
): string[] {
  const inside = ['sh', '-c', INSIDE, 'sh', root, data, user, ...command];
  return ['sh', '-c', OUTSIDE, 'sh', data, ...inside];
}

/** Makes a directory that belongs to this user of the root file system. */
export async function makeDataDir(path: string, root: string, user: string): Promise<void> {
  const lines = (await readFile(join(root, 'etc/passwd'), 'utf8')).split('\n');
  const [, , uid, gid] = lines.find((line) => line.startsWith(`${user}:`))?.split(':') ?? [];
  if (uid === undefined || gid === undefined)
    throw new Error(`${root} has no user ${user}: remove it and try again`);
  await mkdir(path, { recursive: true, mode: 0o700 });
  await chown(path, Number(uid), Number(gid));
}
