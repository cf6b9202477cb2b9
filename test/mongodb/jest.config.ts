/** Jest for `make test-mongodb`; one file at a time, because fail points are global. */
import type { Config } from 'jest';
import { TEST_HANG_MS } from '../support/wait.ts';

const config: Config = {
  rootDir: '../..',
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  testMatch: ['<rootDir>/test/mongodb/*.test.ts'],
  globalSetup: '<rootDir>/test/mongodb/global-setup.ts',
  globalTeardown: '<rootDir>/test/support/global-teardown.ts',
  testTimeout: TEST_HANG_MS,
  maxWorkers: 1,
  verbose: true,
};

export default config;
