/**
 * A process whose wall clock is wrong, without touching that of the machine: `Date` is replaced
 * before anything is loaded.
 */
export function wrongClock(seconds: number): { readonly NODE_OPTIONS: string } {
  const code = `
    const Right = Date;
    const now = () => Right.now() + ${seconds * 1_000};
    globalThis.Date = class Date extends Right {
      constructor(...given) { if (given.length === 0) super(now()); else super(...given); }
      static now() { return now(); }
    };`;
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` };
}
