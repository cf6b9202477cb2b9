/** Jest: Node's own type stripping (no transform), real stores started once for all integration tests. */
import type { Config } from 'jest';

const config: Config = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  coverageProvider: 'v8',
  testMatch: ['<rootDir>/**/*.test.ts'],
  // Tests in a cluster have a configuration of their own: they share one install, in order.
  testPathIgnorePatterns: ['/node_modules/', '/dist/', '/test/e2e/'],
  globalSetup: '<rootDir>/test/support/global-setup.ts',
  globalTeardown: '<rootDir>/test/support/global-teardown.ts',
  testTimeout: 60_000,
  // More than this machine has cores: most tests wait for stores, children and timers.
  maxWorkers: 3,
};

export default config;
