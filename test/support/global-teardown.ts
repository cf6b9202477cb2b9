/** Ends the servers, and fails the run if a test left files. */
import { closeTemporaryFolder } from './temporary-folder.ts';

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default async function globalTeardown(): Promise<void> {
  await Promise.all((globalThis.partnerIngestTestServers ?? []).map((server) => server.stop()));
  const left = await closeTemporaryFolder();
  if (left.length === 0) return;
  console.error(`tests left behind in the temporary folder: ${left.join(', ')}`);
  // A throw would lose the results of all tests.
  process.exitCode = 1;
}
