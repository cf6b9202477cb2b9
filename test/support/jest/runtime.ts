/**
 * Jest's runtime, but Node itself loads the tests. Jest would give each file a context of node:vm, and load and compile every
 * package anew in it: a sixth of the processor time of all tests. Here packages are loaded once in a process, our own modules
 * once for each test file, and errors and globals are of one kind, as in the services.
 */
/* oxlint-disable node/no-process-env -- children get it from there */
import { createRequire, registerHooks } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../needs.ts';

// Its types are those of `require`.
const { default: Runtime } = createRequire(import.meta.url)('jest-runtime') as typeof import('jest-runtime');

const OURS = pathToFileURL(`${ROOT}/`).href;
const GLOBALS = new URL('globals.ts', import.meta.url).href;

// Children of the tests compile each file once, not once in each of some hundred processes. It is too late for this process,
// which would fill the cache with our modules once for each test file.
process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, '.run', 'compile-cache');

/** Says to which test file a module of ours belongs. */
const MARK = /\?test=\d+$/;
let files = 0;

registerHooks({
  resolve(specifier, context, next) {
    const mark = MARK.exec(context.parentURL ?? '')?.[0];
    if (mark === undefined) return next(specifier, context);
    if (specifier === '@jest/globals') return { url: GLOBALS + mark, shortCircuit: true };
    const found = next(specifier, context);
    const ours = found.url.startsWith(OURS) && !found.url.includes('/node_modules/') && !found.url.includes('?');
    return ours ? { ...found, url: found.url + mark } : found;
  },
});

class NodeRuntime extends Runtime {
  /** Asked of test files, all of which are modules. */
  override unstable_shouldLoadAsEsm(): boolean {
    return true;
  }

  override async unstable_importModule(path: string): Promise<void> {
    files += 1;
    Object.assign(globalThis, { jestGlobals: this.requireModuleOrMock(path, '@jest/globals') });
    await import(`${pathToFileURL(path).href}?test=${files}`);
  }
}

export { NodeRuntime as 'module.exports' };
