/** Runs a program to its end, within a time-out, and gives what it printed. */
import { execFile } from 'node:child_process';

/** An `npm ci` on a busy machine takes the longest: a minute. It only catches a hang. */
const TIMEOUT_MS = 10 * 60_000;
const OUTPUT_BYTES = 64 * 1_048_576;
/** Characters of the output that a failure quotes. */
const QUOTED = 2_000;

export async function run(
  program: string,
  args: readonly string[],
  options: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv } = {},
): Promise<string> {
  return await new Promise((resolve, reject) => {
    const settings = { timeout: TIMEOUT_MS, maxBuffer: OUTPUT_BYTES, ...options };
    execFile(program, args, settings, (error, out, err) => {
      if (error === null) return resolve(out);
      const said = `${out}\n${err}`.trim().slice(-QUOTED);
      reject(
        new Error(`${program} ${args[0] ?? ''} failed: ${said === '' ? error.message : said}`),
      );
    });
  });
}
