/** What is wrong, for programs and for people. */
export interface Fault<Code extends string = string> {
  readonly code: Code;
  /** The server, the part or the cause that the code is of. */
  readonly of?: string;
  /** A sentence for people: no program reads it. */
  readonly words: string;
}
