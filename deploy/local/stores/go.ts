// Programs that are built from their Go modules.

import process from 'node:process';
import { run } from './process.ts';

const TIMEOUT_MS = 20 * 60_000;

export interface GoProgram {
  /** For the log: its name and version. */
  readonly name: string;
  /** `module/path/to/program@version`. */
  readonly source: string;
}

let lastBuild: Promise<void> = Promise.resolve();

/**
 * Builds the program into `folder`. One at a time: a build uses all cores, and the next one finds
 * what it has compiled.
 */
export function buildGoProgram(
  program: GoProgram,
  folder: string,
  { log, logFile }: { readonly log: (line: string) => void; readonly logFile: string },
): Promise<void> {
  const build = async (): Promise<void> => {
    log(`building ${program.name} with Go (1 to 2 min, once) …`);
    await run({
      command: ['go', 'install', '-trimpath', '-ldflags=-s -w', program.source],
      // Without C all programs share what is compiled of Go's own packages.
      // oxlint-disable-next-line node/no-process-env -- Go needs the environment as it is (proxy, caches)
      env: { ...process.env, GOBIN: folder, CGO_ENABLED: '0' },
      logFile,
      timeoutMs: TIMEOUT_MS,
    });
  };
  const built = lastBuild.then(build);
  lastBuild = built.catch(() => {});
  return built;
}
