/**
 * The baseline: a durable, straightforward implementation: the same contract in the common case,
 * the same durability, keys in memory, the same limiter plugin on the same Redis. Each request
 * waits for its own insert and its own queue entry.
 */
/* oxlint-disable node/no-process-env -- a program of its own */
import rateLimit from '@fastify/rate-limit';
import { Queue } from 'bullmq';
import { fastify } from 'fastify';
import { Redis } from 'ioredis';
import { Binary, MongoClient } from 'mongodb';
import { hash } from 'node:crypto';
import { typeidUnboxed } from 'typeid-js';

const env = (name: string): string => process.env[name] ?? '';
const mongo = new MongoClient(env('MONGODB_URI'), {
  writeConcern: { w: 'majority', journal: true },
});
const requests = mongo.db(env('MONGODB_DATABASE')).collection<{ _id: string }>('requests');
const redis = new Redis(env('REDIS_URL'), { maxRetriesPerRequest: null });
const queue = new Queue('naive-applications', { connection: redis });
const keys = new Map([[hash('sha256', env('API_KEY'), 'hex'), 'demo']]);

const app = fastify({ logger: false, trustProxy: '127.0.0.0/8', bodyLimit: 65_000 });
await app.register(rateLimit, { global: true, max: 300, timeWindow: 60_000, redis });
app.removeAllContentTypeParsers();
app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
app.post('/api/v1/capital/ingest', async (request, reply) => {
  const key = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1] ?? '';
  const partnerId = keys.get(hash('sha256', key, 'hex'));
  if (partnerId === undefined)
    return reply.code(401).send({ error: 'Unauthorized: Invalid API Key' });
  const body = request.body as Buffer;
  const requestId = typeidUnboxed('req');
  let isObject = false;
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    // The request is recorded without its job.
  }
  await requests.insertOne({
    _id: requestId,
    receivedAt: new Date(),
    partnerId,
    remoteIp: request.ip,
    body: new Binary(body),
    bodySha256: hash('sha256', body, 'hex'),
    state: isObject ? 'recorded' : 'malformed',
  } as { _id: string });
  if (!isObject) {
    return reply
      .code(400)
      .send({ error: 'Request body must be a JSON object', data: { request_id: requestId } });
  }
  await queue.add('application', { requestId }, { jobId: requestId, removeOnComplete: true });
  return reply
    .code(202)
    .send({ message: 'Request accepted for processing', data: { request_id: requestId } });
});
await mongo.connect();
const address = await app.listen({ host: '127.0.0.1', port: 0 });
console.log(JSON.stringify({ msg: 'serving', url: address }));
