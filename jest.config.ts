/**
 * Jest strips types itself where there is no transform. Real stores are started once for all
 * integration tests.
 */
import type { Config } from 'jest';
import { foundObstacles, leftOutFiles } from './test/support/needs.ts';
import { TEST_HANG_MS } from './test/support/wait.ts';

const leftOut = leftOutFiles(foundObstacles());

const config: Config = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {},
  coverageProvider: 'v8',
  testMatch: ['<rootDir>/**/*.test.ts'],
  testPathIgnorePatterns: [
    '/node_modules/',
    '/dist/',
    // Tests in a cluster and on a real MongoDB have configurations of their own.
    '/test/(e2e|mongodb)/',
    ...leftOut.map(({ path }) => `/${path.replaceAll('.', '\\.')}$`),
  ],
  // What is asked for may be all that cannot run here.
  passWithNoTests: leftOut.length > 0,
  setupFiles: ['<rootDir>/test/support/compile-cache.ts'],
  globalSetup: '<rootDir>/test/support/global-setup.ts',
  globalTeardown: '<rootDir>/test/support/global-teardown.ts',
  testTimeout: TEST_HANG_MS,
  // More than this machine has cores: most tests wait for stores, children and timers.
  maxWorkers: 4,
};

export default config;
