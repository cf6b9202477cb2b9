/**
 * A disk that can lose its power, which loses all unsynced writes. nbdkit holds them in memory, and
 * killing it is the power cut.
 */
import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { installDiskRoot, debianObstacle } from '../../deploy/local/stores/install.ts';
import {
  run,
  startProcess,
  succeeds,
  type ServerProcess,
} from '../../deploy/local/stores/process.ts';
import { inRoot } from '../../deploy/local/stores/root.ts';
import { poll } from '../../deploy/local/stores/wait.ts';

export interface PowerDisk {
  readonly folder: string;
  /** Syncs all data, such as files copied before a store starts. */
  sync(): Promise<void>;
  /** Loses all unsynced data; nothing can be written from then on. */
  cut(): Promise<void>;
  /** Brings back the synced data, once the programs that used the folder have ended. */
  restore(): Promise<void>;
  close(): Promise<void>;
}

const SIZE = '2G';
const UP_TIMEOUT_MS = 20_000;
const COMMAND_TIMEOUT_MS = 20_000;

// The kernel shows nbdfuse's file as a block device.
const SERVE = `
set -e
[ -s /data/disk.img ] || { truncate -s ${SIZE} /data/disk.img; mkfs.ext4 -q -F /data/disk.img; }
mkdir /tmp/raw
nbdkit -f -U /tmp/socket --filter=cache file /data/disk.img cache=writeback &
appears() { for _ in $(seq 200); do [ -e "$1" ] && return; sleep 0.05; done; exit 1; }
appears /tmp/socket
nbdfuse /tmp/raw 'nbd+unix:///?socket=/tmp/socket' &
appears /tmp/raw/nbd
losetup --show -f /tmp/raw/nbd > /data/device.new
mv /data/device.new /data/device
wait`;

/** Says why this machine cannot have such a disk; undefined if it can. */
export async function powerDiskObstacle(): Promise<string | undefined> {
  const obstacle = await debianObstacle();
  if (obstacle !== undefined) return obstacle;
  for (const device of ['/dev/fuse', '/dev/loop-control'])
    if (!(await succeeds(['test', '-c', device]))) return `this machine has no ${device}`;
  return undefined;
}

/** Opens an empty disk in the folder `place`, in the place of one that a killed run left. */
export async function openPowerDisk(
  place: string,
  log: (line: string) => void,
): Promise<PowerDisk> {
  const root = await installDiskRoot(log);
  const [device, folder, logFile] = ['device', 'mounted', 'disk.log'].map((name) =>
    join(place, name),
  ) as [string, string, string];
  const left = await readFile(device, 'utf8').catch(() => '');
  if (await succeeds(['umount', '-l', folder])) await succeeds(['losetup', '-d', left.trim()]);
  await rm(place, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  let power: ServerProcess | undefined;
  let loop: string | undefined;

  const command = (...words: string[]): Promise<void> =>
    run({ command: words, logFile, timeoutMs: COMMAND_TIMEOUT_MS });

  async function switchOn(): Promise<void> {
    await rm(device, { force: true });
    const serve = inRoot(root, place, 'root', ['sh', '-c', SERVE]);
    power = await startProcess({ command: serve, logFile, wrapped: true });
    const read = (): Promise<string> => readFile(device, 'utf8').catch(() => '');
    await poll(UP_TIMEOUT_MS, async () => power?.running() !== true || (await read()) !== '');
    loop = (await read()).trim();
    if (loop === '')
      throw new Error(`the disk that can lose its power did not come up; see ${logFile}`);
    await command('mount', loop, folder);
  }
  async function cut(): Promise<void> {
    await power?.signal('SIGKILL');
    await power?.end('SIGKILL');
    power = undefined;
  }
  async function takeAway(): Promise<void> {
    await cut();
    if (loop === undefined) return;
    await command('umount', '-l', folder);
    await command('losetup', '-d', loop);
    loop = undefined;
  }
  await switchOn();
  return {
    folder,
    sync: () => command('sync', '--file-system', folder),
    cut,
    async restore() {
      await takeAway();
      await switchOn();
    },
    async close() {
      await takeAway();
      await rm(place, { recursive: true, force: true });
    },
  };
}
