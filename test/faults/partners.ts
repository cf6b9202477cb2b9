/** Faults of partners, their keys and their traffic. */
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { DAY_MS } from '../../internal/platform/clock.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { INGEST_PATH } from '../support/http.ts';
import type { Injector } from './fault.ts';
import { FAULT_USER_AGENT } from './ledger.ts';
import type { ChaosWorld } from './world.ts';

/** More partners than all others, so that their removal is that of most keys. */
const EMPTIED_PARTNERS = Array.from({ length: 12 }, (_none, index) => ({
  partner: `emptied-${index}`,
  keys: [newApiKey()],
}));
/** The controller has stored a new key long before this. */
const STORED_WITHIN_MS = 5_000;

async function writeEmptied({ keyFolder }: ChaosWorld): Promise<void> {
  await Promise.all(EMPTIED_PARTNERS.map((partner) => writePartnerSecret(keyFolder, partner)));
}

const EVERY_MS = 50;

/** Sends such requests all the time, `atOnce` to each ingest; `headersOf` is asked once. */
function sending(
  about: string,
  atOnce: number,
  request: Pick<RequestInit, 'method' | 'body'> & { readonly path: string },
  headersOf: (world: ChaosWorld) => Promise<Record<string, string>>,
): Injector {
  let timer: NodeJS.Timeout | undefined;
  return {
    about,
    inject: async (world) => {
      const { path, ...options } = request;
      const headers = await headersOf(world);
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

/** Far over the alert's threshold, and little load. */
const keyTried = (about: string, keyOf: (world: ChaosWorld) => Promise<string>): Injector =>
  sending(about, 3, { path: INGEST_PATH, method: 'POST', body: '{}' }, async (world) => ({
    authorization: `Bearer ${await keyOf(world)}`,
    'user-agent': FAULT_USER_AGENT,
  }));

const setReady = async (world: ChaosWorld, ready: boolean): Promise<void> => {
  for (const slot of world.slotsOf('ingest')) slot.ready = ready;
};

async function removedKey({ keyFolder }: ChaosWorld): Promise<string> {
  const key = newApiKey();
  const file = await writePartnerSecret(keyFolder, { partner: 'forgetful', keys: [key] });
  await pause(STORED_WITHIN_MS);
  await rm(file);
  await pause(STORED_WITHIN_MS);
  return key;
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
  'keys-ending': {
    about: 'the only key of a partner ends tomorrow',
    inject: async ({ keyFolder }) => {
      const annotations = {
        'partner-ingest.io/not-after': new Date(Date.now() + DAY_MS).toISOString(),
      };
      await writePartnerSecret(keyFolder, {
        partner: 'ending',
        keys: [newApiKey()],
        annotations,
      });
    },
    heal: ({ keyFolder }) => rm(join(keyFolder, 'ending.yaml')),
  },
  'keys-emptied': {
    about: 'the Secrets of most partners are deleted at once',
    inject: async (world) => {
      await writeEmptied(world);
      await pause(STORED_WITHIN_MS);
      await Promise.all(
        EMPTIED_PARTNERS.map(({ partner }) => rm(join(world.keyFolder, `${partner}.yaml`))),
      );
    },
    heal: writeEmptied,
  },
  'keys-guessed': keyTried('somebody tries unknown keys', async () => newApiKey()),
  'removed-key-used': keyTried('a partner goes on with a key that was removed', removedKey),
  // As by a balancer whose certificate or route is gone: the ingest pods are well.
  'traffic-stopped': {
    about: 'no request of a partner arrives any more',
    inject: (world) => setReady(world, false),
    heal: (world) => setReady(world, true),
  },
  'untrusted-proxy': sending(
    'most requests come with X-Forwarded-For from a proxy that is not in TRUSTED_PROXIES',
    10,
    { path: '' },
    async () => ({ 'x-forwarded-for': '192.0.2.1' }),
  ),
} as const satisfies Readonly<Record<string, Injector>>;
