/** The readers of a body, and faulty readers as controls. */
import { zstdDecompressSync } from 'node:zlib';
import { Binary } from 'mongodb';
import { parseApplication, parseJsonObject } from '../../internal/application/parse-application.ts';
import { relationOf } from '../../internal/operators/orders/erase.ts';
import { printableJson } from '../../internal/operators/view/terminal.ts';
import { bodyInWords, recordJson } from '../../internal/operators/view/record.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { EINS, LONG_ADDRESS } from './shapes.ts';

export type Reader = (bytes: Buffer) => void;

const recordOf = (bytes: Buffer): SubmissionRecord => ({
  _id: 'req_1',
  receivedAt: new Date(0),
  remoteIp: '::1',
  body: new Binary(bytes),
  bodyBytes: bytes.length,
  httpStatus: 202,
  schema: 1,
  state: 'recorded',
  stateAt: new Date(0),
  version: 0,
  attempts: 0,
  history: [],
});

export const service: Readonly<Record<string, Reader>> = {
  'ingest judges it': (bytes) => void parseJsonObject(bytes),
  'the processor reads it': (bytes) => void parseApplication(bytes),
  'erase looks for an address': (bytes) =>
    void relationOf({ email: LONG_ADDRESS }, recordOf(bytes)),
  'erase looks for an EIN': (bytes) => void relationOf({ ein: EINS[0] }, recordOf(bytes)),
  'erase looks for an EIN that begins with zero': (bytes) =>
    void relationOf({ ein: EINS[1] }, recordOf(bytes)),
  'export shows it': (bytes) => void printableJson(recordJson(recordOf(bytes), true)),
  'show describes it': (bytes) => void bodyInWords(recordOf(bytes)),
};

/** The judge must catch each of these. */
export const controls = {
  'reads again from each place': (bytes) =>
    void /[^]*never/.test(bytes.toString('latin1', 0, 20_000)),
  'unpacks what it finds': (bytes) => {
    const unpacked: Buffer[] = [];
    for (const [piece] of bytes.toString('latin1', 0, 10_000).matchAll(/[\w+/]{40,}={0,2}/g)) {
      try {
        unpacked.push(
          zstdDecompressSync(Buffer.from(piece, 'base64'), { maxOutputLength: 1_048_576 }),
        );
      } catch {
        // The body is not compressed.
      }
    }
  },
  'takes 48 MiB': () => void Buffer.alloc(48 * 1024 * 1024, 1),
} as const satisfies Readonly<Record<string, Reader>>;
export type Control = keyof typeof controls;
