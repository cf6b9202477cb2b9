import { read } from './pages.ts';

/** What the image sets for all its processes, for tests and measurements of what is shipped. */
export function imageEnvironment(): Record<string, string> {
  const [, line = ''] = /^ENV (.*)$/m.exec(read('Dockerfile')) ?? [];
  return Object.fromEntries(
    [...line.matchAll(/(\w+)=(?:"([^"]*)"|(\S*))/g)].map(([, name = '', quoted, bare = '']) => [
      name,
      quoted ?? bare,
    ]),
  );
}
