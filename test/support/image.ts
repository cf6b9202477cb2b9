import { imageConfig } from '../../tools/release/dockerfile.ts';
import { read } from './pages.ts';

/** What the image sets for all its processes, for tests and measurements of what is shipped. */
export function imageEnvironment(): Record<string, string> {
  const { Env } = imageConfig(read('Dockerfile'), {});
  return Object.fromEntries(Env.map((line) => line.split(/=(.*)/) as [string, string]));
}
