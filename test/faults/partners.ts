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

/** Requests with the header, as an unknown proxy sends them. */
const FORWARDED_AT_ONCE = 10;
const FORWARDED_EVERY_MS = 50;

function untrustedProxy(): Injector {
  let timer: NodeJS.Timeout | undefined;
  return {
    about: 'most requests come with X-Forwarded-For from a proxy that is not in TRUSTED_PROXIES',
    inject: async (world) => {
      timer = setInterval(() => {
        for (const { url } of world.targets()) {
          for (let one = 0; one < FORWARDED_AT_ONCE; one += 1) {
            void fetch(url, { headers: { 'x-forwarded-for': '192.0.2.1' } })
              .then((answer) => answer.arrayBuffer())
              .catch(() => undefined);
          }
        }
      }, FORWARDED_EVERY_MS);
    },
    heal: async () => clearInterval(timer),
  };
}

/**
 * As a balancer does whose certificate or route is gone: nobody reaches the ingest pods, which are
 * well.
 */
function trafficStopped(): Injector {
  const setReady = async (world: ChaosWorld, ready: boolean): Promise<void> => {
    for (const slot of world.slotsOf('ingest')) slot.ready = ready;
  };
  return {
    about: 'no request of a partner arrives any more',
    inject: (world) => setReady(world, false),
    heal: (world) => setReady(world, true),
  };
}

/**
 * Wrong keys at once, as of somebody who guesses: far over the alert's threshold, and little load.
 */
const GUESSES_AT_ONCE = 3;
const GUESS_EVERY_MS = 50;

/** Sends with a key from `keyOf` all the time. */
function keyTried(about: string, keyOf: (world: ChaosWorld) => Promise<string>): Injector {
  let timer: NodeJS.Timeout | undefined;
  return {
    about,
    inject: async (world) => {
      const key = await keyOf(world);
      timer = setInterval(() => {
        for (const { url } of world.targets()) {
          for (let one = 0; one < GUESSES_AT_ONCE; one += 1) {
            const headers = { authorization: `Bearer ${key}`, 'user-agent': FAULT_USER_AGENT };
            void fetch(`${url}${INGEST_PATH}`, { method: 'POST', headers, body: '{}' })
              .then((answer) => answer.arrayBuffer())
              .catch(() => undefined);
          }
        }
      }, GUESS_EVERY_MS);
    },
    heal: async () => clearInterval(timer),
  };
}

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
  'traffic-stopped': trafficStopped(),
  'untrusted-proxy': untrustedProxy(),
} as const satisfies Readonly<Record<string, Injector>>;
