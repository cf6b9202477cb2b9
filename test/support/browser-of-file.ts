import { afterAll } from '@jest/globals';
import { openBrowser } from './browser.ts';

/** Opens a browser for a test file, and closes it after the tests. */
export async function browserOfFile() {
  const browser = await openBrowser();
  afterAll(() => browser.close());
  return browser;
}
