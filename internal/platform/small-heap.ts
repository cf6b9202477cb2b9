/**
 * Imported first by processes that mostly wait: keeps V8's young generation at its first size (1
 * MB). Loading the libraries alone would let it grow to 32 MB, which it rarely gives back.
 */
import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--semi-space-growth-factor=1');

/**
 * Once all is loaded: a process that has much to do spends a fifth of its time collecting so small
 * a generation.
 */
export function letHeapGrow(): void {
  setFlagsFromString('--semi-space-growth-factor=2');
}
