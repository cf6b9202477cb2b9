/** What tests import as `@jest/globals`: what Jest has made for the test file that is being loaded. */
import type * as jestGlobals from '@jest/globals';

const made = (globalThis as unknown as { readonly jestGlobals: typeof jestGlobals }).jestGlobals;
export const { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } = made;
