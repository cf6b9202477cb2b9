/** MongoDB's wire protocol as far as a driver needs it: OP_MSG, and OP_QUERY for a first hello. */
import { BSON, type Document } from 'mongodb';

const OP_REPLY = 1;
const OP_QUERY = 2004;
const OP_MSG = 2013;
const HEADER_BYTES = 16;
const MORE_TO_COME = 1 << 1;
const EXHAUST_ALLOWED = 1 << 16;
const REPLY_FIELDS_BYTES = 20;
const QUERY_NUMBERS_BYTES = 8;

/** Numbers keep their types, so that a command can be encoded again. */
const EXACT = {
  promoteValues: false,
  promoteLongs: false,
  promoteBuffers: false,
  bsonRegExp: true,
} as const;

export interface Request {
  readonly id: number;
  readonly bytes: Buffer;
  readonly command: Document;
  /** A hello of the old form needs an answer of the old form. */
  readonly legacy: boolean;
  /** The client waits for more than one answer. */
  readonly exhaust: boolean;
  readonly oneWay: boolean;
}

/** Splits a stream into messages; each call returns the complete ones. */
export function messageCutter(): (bytes: Buffer) => Buffer[] {
  let rest: Buffer = Buffer.alloc(0);
  return (bytes) => {
    rest = rest.length === 0 ? bytes : Buffer.concat([rest, bytes]);
    const messages: Buffer[] = [];
    while (rest.length >= HEADER_BYTES && rest.length >= rest.readInt32LE(0)) {
      const length = rest.readInt32LE(0);
      messages.push(rest.subarray(0, length));
      rest = rest.subarray(length);
    }
    return messages;
  };
}

export function requestOf(bytes: Buffer): Request {
  const [id, opCode, flags] = [
    bytes.readInt32LE(4),
    bytes.readInt32LE(12),
    bytes.readUInt32LE(HEADER_BYTES),
  ];
  if (opCode === OP_QUERY) {
    const document = bytes.indexOf(0, HEADER_BYTES + 4) + 1 + QUERY_NUMBERS_BYTES;
    return {
      id,
      bytes,
      command: documentAt(bytes, document),
      legacy: true,
      exhaust: false,
      oneWay: false,
    };
  }
  if (opCode !== OP_MSG) throw new Error(`a message of an unknown kind: ${opCode}`);
  const exhaust = (flags & EXHAUST_ALLOWED) !== 0;
  return {
    id,
    bytes,
    command: bodyOf(bytes),
    legacy: false,
    exhaust,
    oneWay: (flags & MORE_TO_COME) !== 0,
  };
}

/** The document of an OP_MSG, with its sequences as arrays. */
export function bodyOf(bytes: Buffer): Document {
  let command: Document = {};
  const sequences: Document = {};
  for (let at = HEADER_BYTES + 4; at < bytes.length;) {
    const kind = bytes.readUInt8(at);
    const end = at + 1 + bytes.readInt32LE(at + 1);
    if (kind === 0) {
      command = documentAt(bytes, at + 1);
    } else {
      const nameEnd = bytes.indexOf(0, at + 5);
      const documents: Document[] = [];
      for (let inner = nameEnd + 1; inner < end; inner += bytes.readInt32LE(inner)) {
        documents.push(documentAt(bytes, inner));
      }
      sequences[bytes.toString('utf8', at + 5, nameEnd)] = documents;
    }
    at = end;
  }
  return { ...command, ...sequences };
}

function documentAt(bytes: Buffer, at: number): Document {
  return BSON.deserialize(bytes.subarray(at, at + bytes.readInt32LE(at)), EXACT);
}

export function responseTo(reply: Buffer): number {
  return reply.readInt32LE(8);
}

/** An OP_MSG: a request with `id`, or an answer to `to`. */
export function message(
  document: Document,
  head: { readonly id?: number; readonly to?: number; readonly moreToCome?: boolean },
): Buffer {
  const body = BSON.serialize(document, { ignoreUndefined: true });
  const head16 = header(HEADER_BYTES + 5 + body.length, head.id ?? 0, head.to ?? 0, OP_MSG);
  const flags = Buffer.alloc(5);
  flags.writeUInt32LE(head.moreToCome === true ? MORE_TO_COME : 0);
  return Buffer.concat([head16, flags, body]);
}

export function legacyReply(document: Document, to: number): Buffer {
  const body = BSON.serialize(document);
  const fields = Buffer.alloc(REPLY_FIELDS_BYTES);
  fields.writeInt32LE(1, REPLY_FIELDS_BYTES - 4);
  return Buffer.concat([
    header(HEADER_BYTES + fields.length + body.length, 0, to, OP_REPLY),
    fields,
    body,
  ]);
}

function header(length: number, id: number, to: number, opCode: number): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES);
  for (const [index, value] of [length, id, to, opCode].entries())
    bytes.writeInt32LE(value, index * 4);
  return bytes;
}
