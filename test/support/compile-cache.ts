/**
 * Children of the tests compile each file once, not once in each of some hundred processes. Jest's
 * own processes do not take part: they would write what they compiled as they end, and be killed in
 * it.
 */
/* oxlint-disable node/no-process-env -- children get it from there */
import { join } from 'node:path';
import { ROOT } from '../../tools/root.ts';

process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, '.run', 'compile-cache');
