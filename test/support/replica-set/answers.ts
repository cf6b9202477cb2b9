/** Answers that members of a replica set give without the store. */
import { ObjectId, type Document } from 'mongodb';

export const SET_NAME = 'rs0';
const MAX_WIRE_VERSION = 21;

/** The answer of a member that is not the primary; a numbered write may be repeated. */
export function notPrimary(command: Document): Document {
  const error = { ok: 0, code: 10_107, codeName: 'NotWritablePrimary', errmsg: 'not primary' };
  return 'txnNumber' in command ? { ...error, errorLabels: ['RetryableWriteError'] } : error;
}

export const INTERRUPTED = {
  ok: 0,
  code: 11_602,
  codeName: 'InterruptedDueToReplStateChange',
  errmsg: 'operation was interrupted',
};

/** The error of a write that no majority acknowledged in time. */
export const TIMED_OUT = {
  code: 64,
  codeName: 'WriteConcernTimeout',
  errmsg: 'waiting for replication timed out',
  errInfo: { wtimeout: true },
};

export function helloOf(member: {
  readonly index: number;
  readonly ports: readonly number[];
  readonly primary: number | undefined;
  readonly term: number;
  readonly topologyVersion: Document;
  readonly localTime: Date;
}): Document {
  const hosts = member.ports.map((port) => `127.0.0.1:${port}`);
  const primary = member.primary === member.index;
  return {
    ok: 1,
    helloOk: true,
    setName: SET_NAME,
    setVersion: 1,
    hosts,
    me: hosts[member.index],
    isWritablePrimary: primary,
    ismaster: primary,
    secondary: !primary,
    ...(member.primary === undefined ? {} : { primary: hosts[member.primary] }),
    ...(primary
      ? { electionId: new ObjectId(`7fffffff${member.term.toString(16).padStart(16, '0')}`) }
      : {}),
    topologyVersion: member.topologyVersion,
    maxBsonObjectSize: 16_777_216,
    maxMessageSizeBytes: 48_000_000,
    maxWriteBatchSize: 100_000,
    localTime: member.localTime,
    logicalSessionTimeoutMinutes: 30,
    minWireVersion: 0,
    maxWireVersion: MAX_WIRE_VERSION,
    readOnly: false,
  };
}
