/**
 * The contenders under load: ours, the naive durable one, and a bare Fastify, in alternating rounds
 * on the same stores.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { MongoClient } from 'mongodb';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { startService } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { imageEnvironment } from '../support/image.ts';
import { load, startProgram, type LoadResult, type Server } from './load.ts';

export const contenders = ['ours', 'naive', 'bare'] as const;
const DATABASE = 'bench_ours';
export type Contender = (typeof contenders)[number];

export interface ContenderRound extends LoadResult {
  readonly contender: Contender;
  readonly connections: number;
  readonly round: number;
  /** Records of one database write during the round; ours only. */
  readonly perWrite?: number;
}

/** Answers of ours against its records, over all rounds. */
export interface Agreement {
  readonly accepted: number;
  readonly stored: number;
  readonly badStatus: number;
  readonly agrees: boolean;
}

export interface Stores {
  readonly mongo: { readonly url: string; readonly client: MongoClient };
  readonly redisUrl: string;
}

/** Runs all rounds; `onRound` hears of each as it ends. What it starts it also stops. */
export async function loadContenders(
  stores: Stores,
  plan: {
    readonly connections: readonly number[];
    readonly rounds: number;
    readonly seconds: number;
  },
  onRound: (round: ContenderRound) => void,
): Promise<{ readonly rounds: readonly ContenderRound[]; readonly agreement: Agreement }> {
  const opened: (() => Promise<unknown>)[] = [];
  try {
    const key = newApiKey();
    const keyFolder = await mkdtemp(join(tmpdir(), 'bench-keys-'));
    opened.push(() => rm(keyFolder, { recursive: true }));
    await writePartnerSecret(keyFolder, { partner: 'bench', keys: [key] });
    const environment = {
      MONGODB_URI: stores.mongo.url,
      MONGODB_DATABASE: DATABASE,
      REDIS_URL: `${stores.redisUrl}/1`,
      PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
      TRUSTED_PROXIES: '127.0.0.0/8',
      ...imageEnvironment(),
    };
    const controller = await startService('controller', environment, { compiled: true });
    opened.push(() => controller.stop());
    const ingest = await startService('ingest', environment, { compiled: true });
    opened.push(() => ingest.stop());
    await ingest.ready();
    await stores.mongo.client.db('bench_naive').createCollection('requests');
    const naive = await startProgram('naive-ingest.ts', {
      MONGODB_URI: stores.mongo.url,
      REDIS_URL: `${stores.redisUrl}/2`,
      MONGODB_DATABASE: 'bench_naive',
      API_KEY: key,
    });
    opened.push(() => naive.stop());
    const bare = await startProgram('bare-fastify.ts', {});
    opened.push(() => bare.stop());
    const servers = new Map<Contender, Server>([
      ['ours', { url: ingest.url, pid: ingest.child.pid ?? 0 }],
      ['naive', naive],
      ['bare', bare],
    ]);

    const rounds: ContenderRound[] = [];
    for (const connections of plan.connections) {
      for (let number = 1; number <= plan.rounds; number += 1) {
        for (const [contender, server] of servers) {
          const before = contender === 'ours' ? await writes(ingest.adminUrl) : undefined;
          const result = await load({ ...server, key, connections, seconds: plan.seconds });
          const after = before === undefined ? undefined : await writes(ingest.adminUrl);
          const round = {
            contender,
            connections,
            round: number,
            ...result,
            ...(before === undefined || after === undefined
              ? {}
              : { perWrite: (after.records - before.records) / (after.writes - before.writes) }),
          };
          rounds.push(round);
          onRound(round);
        }
      }
    }
    return { rounds, agreement: await agreementOf(stores, ingest.adminUrl, rounds) };
  } finally {
    for (const close of opened.toReversed()) await close();
  }
}

async function agreementOf(
  { mongo }: Stores,
  adminUrl: string,
  rounds: readonly ContenderRound[],
): Promise<Agreement> {
  const count = (database: string, filter = {}): Promise<number> =>
    mongo.client.db(database).collection('requests').countDocuments(filter);
  const of = (name: Contender): readonly ContenderRound[] =>
    rounds.filter(({ contender }) => contender === name);
  const sum = (values: readonly number[]): number =>
    values.reduce((total, value) => total + value, 0);
  const stored = await count(DATABASE, { state: 'recorded', httpStatus: 202 });
  const accepted =
    rounds.length === 0
      ? 0
      : await metric(adminUrl, 'partner_ingest_requests_total', 'status="202"');
  const badStatus = sum(rounds.map((round) => round.badStatus));
  // wrk ends during its last requests: these are stored, but their answers are not counted.
  const unfinished = sum(of('ours').map(({ connections }) => connections));
  const surplus = stored - accepted;
  return {
    accepted,
    stored,
    badStatus,
    agrees: surplus >= 0 && surplus <= unfinished && badStatus === 0,
  };
}

async function writes(adminUrl: string): Promise<{ records: number; writes: number }> {
  return {
    records: await metric(adminUrl, 'partner_ingest_batch_documents_sum'),
    writes: await metric(adminUrl, 'partner_ingest_batch_documents_count'),
  };
}

async function metric(adminUrl: string, name: string, label = ''): Promise<number> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  const line = text
    .split('\n')
    .find((candidate) => candidate.startsWith(name) && candidate.includes(label));
  return Number(line?.slice(line.lastIndexOf(' ')) ?? Number.NaN);
}
