/**
 * Child processes share compiled files. Jest's own processes do not: Jest kills them while they
 * would write.
 */
/* oxlint-disable node/no-process-env -- children get it from there */
import { join } from 'node:path';
import { ROOT } from '../../tools/root.ts';

process.env['NODE_COMPILE_CACHE'] ??= join(ROOT, '.run', 'compile-cache');
