/** A failure that states its class. */
import type { FailureClass } from './failures.ts';

export class AttemptFailure extends Error {
  override readonly name = 'AttemptFailure';
  readonly failure: FailureClass;
  readonly possibleMails: number | undefined;

  /** Support reads `words`, so they hold nothing personal. */
  constructor(failure: FailureClass, words: string, possibleMails?: number) {
    super(words);
    this.failure = failure;
    this.possibleMails = possibleMails;
  }
}
