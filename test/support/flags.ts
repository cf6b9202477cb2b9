/** Flags and progress of the programs of tests. */

/** An empty text counts as not given, so that make can pass unset variables. */
export function wholeNumber(name: string, given: string, usual: number): number {
  if (given === '') return usual;
  if (!/^\d{1,9}$/.test(given)) throw new Error(`--${name} must be a whole number`);
  return Number(given);
}

/** Writes lines to standard error, with the seconds since this call. */
export function secondsLog(): (line: string) => void {
  const startedAt = performance.now();
  return (line) => {
    const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
    console.error(`${seconds.padStart(6)} s  ${line}`);
  };
}
