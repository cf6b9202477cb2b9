/** How a command says no: the thing is not there, or not in a state for this. One line, exit code 1. */
export class RefusedError extends Error {
  override readonly name = 'RefusedError';
}
