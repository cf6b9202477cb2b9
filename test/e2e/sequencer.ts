/** Runs the test files in the order of their names, because each starts from the state before. */

interface TestFile {
  readonly path: string;
}

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default class InOrder {
  sort(tests: readonly TestFile[]): TestFile[] {
    return tests.toSorted((one, other) => one.path.localeCompare(other.path));
  }

  /** Nothing is remembered, because the order is fixed. */
  cacheResults(): void {}
}
