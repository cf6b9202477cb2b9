/**
 * The baseline for background work, a straightforward implementation: the same queue, stores,
 * indexes, concurrency and mail; one job for each record, which reads it, validates, creates the
 * account, mails and completes. It has no claims, no history, no mail ledger and no retry of its
 * own.
 */
/* oxlint-disable node/no-process-env -- a program of its own */
import { Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { MongoClient, type Binary } from 'mongodb';
import { createTransport } from 'nodemailer';
import { typeidUnboxed } from 'typeid-js';
import { z } from 'zod';

const env = (name: string): string => process.env[name] ?? '';
const CONCURRENCY = Number(env('CONCURRENCY'));
const client = new MongoClient(env('MONGODB_URI'), {
  writeConcern: { w: 'majority', journal: true },
});
const db = client.db(env('MONGODB_DATABASE'));
const requests = db.collection<{ _id: string; body: Binary; state: string }>('requests');
const accounts = db.collection<{ _id: string }>('accounts');
const application = z.object({
  email: z.email(),
  business_name: z.string().min(1),
  ein: z.string().regex(/^\d{9}$/),
});
const transport = createTransport({
  url: env('SMTP_URL'),
  pool: true,
  maxConnections: CONCURRENCY,
});

await client.connect();
const worker = new Worker<{ requestId: string }>(
  'naive-applications',
  async (job) => {
    const record = await requests.findOne({ _id: job.data.requestId });
    if (record?.state !== 'recorded') return;
    const parsed = application.safeParse(
      JSON.parse(Buffer.from(record.body.buffer).toString('utf8')),
    );
    if (!parsed.success) {
      await requests.updateOne({ _id: record._id }, { $set: { state: 'rejected' } });
      return;
    }
    const { email, ein, business_name: businessName } = parsed.data;
    const accountId = typeidUnboxed('acc');
    await accounts.insertOne({
      _id: accountId,
      email,
      emailNormalized: email.toLowerCase(),
      ein,
      businessName,
      requestId: record._id,
      createdAt: new Date(),
    } as { _id: string });
    await transport.sendMail({
      from: 'accounts@bench.example',
      to: email,
      subject: 'Your account is ready',
      text: `Hello ${businessName},\nsign in at https://login.bench.example/?account=${accountId}\n`,
      html: `<p>Hello ${businessName},</p><p><a href="https://login.bench.example/?account=${accountId}">Sign in</a></p>`,
    });
    await requests.updateOne({ _id: record._id }, { $set: { state: 'completed', accountId } });
  },
  {
    connection: new Redis(env('REDIS_URL'), { maxRetriesPerRequest: null }),
    concurrency: CONCURRENCY,
  },
);
await worker.waitUntilReady();
console.log(JSON.stringify({ msg: 'serving', url: '' }));
