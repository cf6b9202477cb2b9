/**
 * Runs the test files in the order of their names: each leaves the install to the next as it should
 * be.
 */

interface TestFile {
  readonly path: string;
}

/** The part of Jest's sequencer that is used without `--onlyFailures` and `--shard`. */
// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default class InOrder {
  sort(tests: readonly TestFile[]): TestFile[] {
    return tests.toSorted((one, other) => one.path.localeCompare(other.path));
  }

  /**
   * Jest's own remembers how long each took, to start the slow ones first; here the order is fixed.
   */
  cacheResults(): void {}
}
