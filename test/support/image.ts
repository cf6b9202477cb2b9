/** What the image sets for all its processes, for tests and measurements of what is shipped. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const DOCKERFILE = fileURLToPath(new URL('../../Dockerfile', import.meta.url));

/** The variables of the Dockerfile's ENV line. */
export function imageEnvironment(): Record<string, string> {
  const [, line = ''] = /^ENV (.*)$/m.exec(readFileSync(DOCKERFILE, 'utf8')) ?? [];
  return Object.fromEntries(
    [...line.matchAll(/(\w+)=(?:"([^"]*)"|(\S+))/g)].map(([, name, quoted, bare]) => [
      name,
      quoted ?? bare,
    ]),
  );
}
