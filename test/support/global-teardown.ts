/** Ends the servers that `global-setup.ts` started. */

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default async function globalTeardown(): Promise<void> {
  await Promise.all((globalThis.partnerIngestTestServers ?? []).map((server) => server.stop()));
}
