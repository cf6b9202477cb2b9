// What a store for running and testing is: the shape shared by every way of getting one.

export type FaultSignal = 'SIGKILL' | 'SIGSTOP' | 'SIGCONT';

export interface Store {
  /** For people: "FerretDB 2.7.0 over PostgreSQL 18". */
  readonly description: string;
  /**
   * `mongodb://127.0.0.1:P/?directConnection=true` or `redis://127.0.0.1:P`; what the environment
   * gave, unchanged.
   */
  readonly url: string;
  /** Injects a fault into every process of the server. Rejects where that server is not ours. */
  signal(signal: FaultSignal): Promise<void>;
  /**
   * Starts the server again on the same port with the same data (killing it first where it still
   * runs) and waits until it answers.
   */
  restart(): Promise<void>;
  /** Ends what was started here, and only that; removes its data. May be called more than once. */
  stop(): Promise<void>;
}

export interface StoreOptions {
  /**
   * A server that is there already (the value of MONGODB_URI or REDIS_URL); nothing is started
   * then.
   */
  url?: string | undefined;
  /** A folder for the data, which the store does not remove; else a temporary one. Not in Docker. */
  data?: string | undefined;
  /** Settings of PostgreSQL, for runs that must fail: `['fsync=off']`. */
  postgresql?: readonly string[] | undefined;
  /** Takes one line of progress, for people. */
  log: (line: string) => void;
}

/** A way of getting a store either gives one or says in a sentence why it cannot. */
export type StoreOrReason = Store | string;

/** A server that belongs to somebody else: it can be used, not harmed. */
export function environmentStore(description: string, url: string, variable: string): Store {
  function refuse(): Promise<never> {
    return Promise.reject(
      new Error(
        `${description} was given by ${variable}, so it is never killed or restarted; unset ${variable} to test faults`,
      ),
    );
  }
  return {
    description,
    url,
    signal: refuse,
    restart: refuse,
    stop: () => Promise.resolve(),
  };
}
