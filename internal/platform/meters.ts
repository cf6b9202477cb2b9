/** What a room needs of a metric, so that it need not know the table of all metrics. */

export interface Counts<Labels> {
  inc(labels: Labels, by?: number): void;
}

export interface CountsAll {
  inc(by?: number): void;
}

export interface Shows {
  set(value: number): void;
}

export interface Observes {
  observe(value: number): void;
}
