/**
 * Jest for the tests in a cluster: one install, one file after the other, in the order of their
 * names.
 */
import type { Config } from 'jest';

const config: Config = {
  rootDir: '../..',
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  testMatch: ['<rootDir>/test/e2e/*.test.ts'],
  globalSetup: '<rootDir>/test/e2e/global-setup.ts',
  globalTeardown: '<rootDir>/test/e2e/global-teardown.ts',
  testSequencer: '<rootDir>/test/e2e/sequencer.ts',
  // A step starts from the state that the one before left.
  bail: false,
  maxWorkers: 1,
  verbose: true,
};

export default config;
