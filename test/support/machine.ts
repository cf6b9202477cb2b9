import { cpus, release, totalmem } from 'node:os';

/** The machine in words, beside a figure of it. */
export const machine = (): string =>
  `Node ${process.versions.node}, ${cpus().length} × ${cpus()[0]?.model.trim()}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}`;
