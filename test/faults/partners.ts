/** Faults of partners, keys and traffic. */
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { ENDED_FREELY } from '../../internal/controller/key-guard.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import { INGEST_PATH } from '../support/http.ts';
import type { Injector } from './fault.ts';
import { FAULT_USER_AGENT } from './ledger.ts';

const PARTNERS = Array.from({ length: ENDED_FREELY + 1 }, (_none, index) => ({
  partner: `emptied-${index}`,
  keys: [newApiKey()],
}));
const STORED_WITHIN_MS = 5_000;

const EVERY_MS = 50;

/** Sends such requests without a pause, `atOnce` to each ingest. */
function sending(
  about: string,
  atOnce: number,
  request: Pick<RequestInit, 'method' | 'body'> & { readonly path: string },
  headers: Readonly<Record<string, string>>,
): Injector {
  let timer: NodeJS.Timeout | undefined;
  return {
    about,
    inject: async (world) => {
      const { path, ...options } = request;
      const sendOne = (url: string): void =>
        void fetch(`${url}${path}`, { ...options, headers })
          .then((answer) => answer.arrayBuffer())
          .catch(() => undefined);
      timer = setInterval(() => {
        for (const { url } of world.targets())
          for (let one = 0; one < atOnce; one += 1) sendOne(url);
      }, EVERY_MS);
    },
    heal: async () => clearInterval(timer),
  };
}

export const partnerFaults = {
  'keys-unreadable': {
    about: 'the partner Secrets cannot be listed',
    inject: async ({ keyFolder }) => rename(keyFolder, `${keyFolder}.away`),
    heal: async ({ keyFolder }) => rename(`${keyFolder}.away`, keyFolder),
  },
  'empty-key': {
    about: 'a partner Secret with an empty key',
    inject: async ({ keyFolder }) =>
      void (await writePartnerSecret(keyFolder, { partner: 'careless', keys: [''] })),
    heal: ({ keyFolder }) => rm(join(keyFolder, 'careless.yaml')),
  },
  'keys-emptied': {
    about: 'the Secrets of all partners are gone',
    prepare: async ({ keyFolder }) => {
      await Promise.all(PARTNERS.map((partner) => writePartnerSecret(keyFolder, partner)));
      await pause(STORED_WITHIN_MS);
    },
    inject: async ({ keyFolder }) => {
      await rename(keyFolder, `${keyFolder}.away`);
      await mkdir(keyFolder);
      // An empty folder ends no key, so one file stays.
      await writeFile(join(keyFolder, 'none.yaml'), '# no Secret\n');
    },
    heal: async ({ keyFolder }) => {
      await rm(keyFolder, { recursive: true });
      await rename(`${keyFolder}.away`, keyFolder);
    },
  },
  'keys-guessed': sending(
    'somebody tries unknown keys',
    3,
    { path: INGEST_PATH, method: 'POST', body: '{}' },
    { authorization: `Bearer ${newApiKey()}`, 'user-agent': FAULT_USER_AGENT },
  ),
  'untrusted-proxy': sending(
    'most requests come with X-Forwarded-For from a proxy that is not in TRUSTED_PROXIES',
    10,
    { path: '' },
    { 'x-forwarded-for': '192.0.2.1' },
  ),
} as const satisfies Readonly<Record<string, Injector>>;
