import { read } from './pages.ts';

/** The environment variables that the image sets. */
export function imageEnvironment(): Record<string, string> {
  const [, line = ''] = /^ENV (.*)$/m.exec(read('Dockerfile')) ?? [];
  return Object.fromEntries(
    [...line.matchAll(/(\w+)=(?:"([^"]*)"|(\S*))/g)].map(([, name = '', quoted, bare = '']) => [
      name,
      quoted ?? bare,
    ]),
  );
}
