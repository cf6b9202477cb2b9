/** A process whose wall clock leaps: `Date` is replaced before anything is loaded. */

/** In turn, each relative to the right time. */
const LEAPS_S = [60, 3_600, 30 * 86_400].flatMap((seconds) => [seconds, -seconds]);
export const LEAPS = LEAPS_S.length;

/** Starts `seconds` ahead, and leaps at each SIGUSR2. */
export function leapingClock(seconds = 0): { readonly NODE_OPTIONS: string } {
  const code = `
    const Right = Date;
    const leaps = ${JSON.stringify(LEAPS_S)};
    let [ahead, next] = [${seconds}, 0];
    process.on('SIGUSR2', () => { ahead = leaps[next++ % leaps.length]; });
    const now = () => Right.now() + ahead * 1_000;
    globalThis.Date = class Date extends Right {
      constructor(...given) { if (given.length === 0) super(now()); else super(...given); }
      static now() { return now(); }
    };`;
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` };
}
