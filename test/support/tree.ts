/** The files under a folder, to compare it with another. */
import { createHash } from 'node:crypto';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';

const MODE_BITS = 0o777;

/** By path: mode and SHA-256 of a file, or where a link leads. */
export async function treeOf(folder: string): Promise<Record<string, string>> {
  const paths = await readdir(folder, { recursive: true });
  const entries = await Promise.all(
    paths.toSorted().map(async (path): Promise<[string, string][]> => {
      const at = join(folder, path);
      const stat = await lstat(at);
      if (stat.isSymbolicLink()) return [[path, `-> ${await readlink(at)}`]];
      if (!stat.isFile()) return [];
      const sha256 = createHash('sha256')
        .update(await readFile(at))
        .digest('hex');
      return [[path, `${(stat.mode & MODE_BITS).toString(8)} ${sha256}`]];
    }),
  );
  return Object.fromEntries(entries.flat());
}
