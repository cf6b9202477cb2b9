/** The metric types that rooms use. */

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
