/** Who may write the keys: one process at a time, under a term that outranks every earlier one. */
import type { Logger } from '../platform/log.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import type { KeyStore, Writer } from '../partner/key-store.ts';
import { FAILURE_BACKOFF } from './limits.ts';

/** Work for one term; must end soon after `signal` aborts. Ends by itself when a later term has been claimed. */
export type TermWork = (writer: Writer, signal: AbortSignal) => Promise<void>;

export interface Election {
  /** Runs `work` each time this process is elected, until `stop` aborts. Never rejects. */
  run(work: TermWork, stop: AbortSignal): Promise<void>;
  /** Why this process could neither lead nor take over; empty when it does or could. */
  faults(): readonly string[];
}

/** For a source that one controller alone reads: the one that started last. */
export function lastStarted({
  owner,
  store,
  log,
}: {
  readonly owner: string;
  readonly store: KeyStore;
  readonly log: Logger;
}): Election {
  let faults = ['the partner keys could not be claimed yet'];
  return {
    faults: () => faults,
    async run(work, stop) {
      const takeTerm = async (): Promise<Writer> => {
        const writer = { owner, term: (await store.currentTerm(owner)) + 1 };
        if (!(await store.claimTerm(writer))) throw new Error('another controller claimed this term');
        return writer;
      };
      const writer = await retryUntilDone(takeTerm, {
        ...FAILURE_BACKOFF,
        signal: stop,
        onFailure: (error, failures) =>
          log[failures === 1 ? 'warn' : 'debug']({ err: error }, 'partner keys could not be claimed; trying again'),
      });
      if (writer === undefined) return;
      faults = [];
      await work(writer, stop);
      if (stop.aborted) return;
      faults = ['another controller that was started later keeps the partner keys now'];
      log.error(faults[0]);
    },
  };
}
