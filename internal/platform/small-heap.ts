/**
 * Imported first by processes that mostly wait: keeps V8's young generation at its first size (1 MB).
 * Loading the libraries alone would let it grow to 32 MB, which it rarely gives back.
 */
import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--semi-space-growth-factor=1');
