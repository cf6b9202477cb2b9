/**
 * A replica set of three members in front of one real store. Its primary may change, lack a
 * majority, or lose writes without a majority. Each process may have a door of its own: the same
 * set on other ports, which can be cut off alone.
 */
import { type Document, Long, MongoClient, ObjectId } from 'mongodb';
import { type Credentials, Login } from './login.ts';
import { type Certificate, type Line, Member } from './member.ts';
import { PreImages } from './pre-images.ts';
import { bodyOf, legacyReply, message, type Request } from './wire.ts';

const MEMBERS = 3;
/** The number of remembered answers to retried writes. */
const REMEMBERED_WRITES = 1_000;

const HELLO = ['hello', 'ismaster', 'isMaster'];
/** Commands that every member answers. */
const ANYWHERE = ['ping', 'endSessions', 'buildInfo', 'saslStart', 'saslContinue', 'killCursors'];

export interface Door {
  readonly url: string;
  readonly ports: readonly number[];
  /** Stops both directions; new connections are silent. */
  part(): void;
  join(): void;
}

/** `directUrl` is a way to the store without faults. With a `login` clients must log in. */
export async function startReplicaSet(
  storeUrl: string,
  options: { readonly directUrl?: string; readonly login?: Credentials } = {},
): Promise<ReplicaSet> {
  const { directUrl = storeUrl, login } = options;
  const client = await MongoClient.connect(directUrl, { serverSelectionTimeoutMS: 10_000 });
  return new ReplicaSet(storeUrl, client, login === undefined ? undefined : new Login(login));
}

/** The member and the door of a connection. */
interface Seat {
  readonly index: number;
  readonly ports: readonly number[];
}

interface Collections {
  readonly only?: string;
  readonly except?: string;
}

export class ReplicaSet {
  readonly commands = new Map<string, number>();
  readonly #store: { readonly host: string; readonly port: number };
  readonly #client: MongoClient;
  #login: Login | undefined;
  readonly #images: PreImages;
  readonly #members: Member[] = [];
  readonly #processes = Array.from({ length: MEMBERS }, () => new ObjectId());
  readonly #written = new Map<string, Promise<Buffer>>();
  readonly #deadlocks = new Map<string, number>();
  readonly #refusals = new Map<string, Document & Collections>();
  readonly #holds = new Map<string, number>();
  readonly #insertDelays = new Map<string, number>();
  #aheadMs = 0;
  #primary: number | undefined = 0;
  #latestPrimary = 0;
  #term = 1;
  #version = 1;
  #changed = Promise.withResolvers<void>();
  #stall: PromiseWithResolvers<'acknowledged' | 'interrupted'> | undefined;
  readonly #used = new Set<Line>();

  constructor(storeUrl: string, client: MongoClient, login: Login | undefined) {
    const { hostname, port } = new URL(storeUrl);
    this.#store = { host: hostname, port: Number(port) };
    this.#client = client;
    this.#login = login;
    this.#images = new PreImages(client);
  }

  /** Connections that carried commands besides the driver's monitoring. */
  opened(): number {
    return this.#used.size;
  }

  async door(options: { readonly certificate?: Certificate } = {}): Promise<Door> {
    const ports: number[] = [];
    const members = Array.from(
      { length: MEMBERS },
      (_, index) =>
        new Member({
          store: this.#store,
          certificate: options.certificate,
          handle: (request, line) => this.#handle(request, line, { index, ports }),
        }),
    );
    for (const member of members) ports.push(await member.listen());
    this.#members.push(...members);
    const hosts = ports.map((port) => `127.0.0.1:${port}`).join(',');
    return {
      url: `mongodb://${hosts}/?replicaSet=${SET_NAME}`,
      ports,
      part: () => members.forEach((member) => member.part()),
      join: () => members.forEach((member) => member.join()),
    };
  }

  /** The login before is refused from now on, also where it let somebody in. */
  changeLogin(login: Credentials): void {
    this.#login = new Login(login);
  }

  /** The primary steps down and keeps its connections; another is elected after `meanwhile`. */
  async stepDown(meanwhile: () => Promise<unknown>): Promise<void> {
    this.#stepDown();
    await meanwhile();
    this.#elect();
  }

  /** Writes apply, and none that wants a majority is acknowledged. */
  stallMajority(): void {
    this.#images.forget();
    this.#stall ??= Promise.withResolvers();
  }

  /** Acknowledges all writes again. */
  resumeMajority(): void {
    this.#stall?.resolve('acknowledged');
    this.#stall = undefined;
    this.#images.forget();
  }

  /** Another primary is elected without the writes since `stallMajority()`. */
  async rollBack(): Promise<void> {
    this.#stepDown();
    await this.#images.restore();
    this.#written.clear();
    this.#elect();
  }

  /** The members' clocks are this far ahead. */
  leap(milliseconds: number): void {
    this.#aheadMs = milliseconds;
  }

  /** Inserts into this collection land as much later, also those whose client has gone. */
  delayInserts(collection: string, milliseconds: number): void {
    this.#insertDelays.set(collection, milliseconds);
  }

  /** Holds replies to this command for this time. */
  holdReplies(command: string, milliseconds: number): void {
    this.#holds.set(command, milliseconds);
  }

  /** Answers this command with this error, until called without one. */
  refuse(
    command: string,
    error?: { readonly code: number; readonly codeName: string },
    collections: Collections = {},
  ): void {
    if (error === undefined) this.#refusals.delete(command);
    else this.#refusals.set(command, { ok: 0, errmsg: error.codeName, ...error, ...collections });
  }

  /** That number of inserts into this collection end as victims of a deadlock: without effect. */
  deadlock(collection: string, inserts: number): void {
    this.#deadlocks.set(collection, inserts);
  }

  async close(): Promise<void> {
    this.#stall?.resolve('interrupted');
    await Promise.all(this.#members.map((member) => member.close()));
    this.#tell();
    await this.#client.close();
  }

  #stepDown(): void {
    this.#primary = undefined;
    this.#stall?.resolve('interrupted');
    this.#stall = undefined;
    this.#tell();
  }

  #elect(): void {
    this.#latestPrimary = (this.#latestPrimary + 1) % MEMBERS;
    this.#primary = this.#latestPrimary;
    this.#term += 1;
    this.#tell();
  }

  #tell(): void {
    this.#version += 1;
    const told = this.#changed;
    this.#changed = Promise.withResolvers();
    told.resolve();
  }

  #hello({ index, ports }: Seat): Document {
    const [primary, term] = [this.#primary, this.#term];
    return helloOf({
      index,
      ports,
      primary,
      term,
      topologyVersion: this.#topologyVersion({ index }),
      localTime: new Date(Date.now() + this.#aheadMs),
    });
  }

  #topologyVersion({ index }: Pick<Seat, 'index'>): Document {
    return { processId: this.#processes[index], counter: Long.fromNumber(this.#version) };
  }

  async #handle(request: Request, line: Line, member: Seat): Promise<void> {
    const name = Object.keys(request.command)[0] ?? '';
    // The driver watches the set by the database `admin`, and is never refused.
    const isWatch = request.legacy || request.command['$db'] === 'admin';
    if (HELLO.includes(name) && (isWatch || !this.#refusals.has(name)))
      return this.#answerHello(request, line, member);
    this.#used.add(line);
    this.commands.set(name, (this.commands.get(name) ?? 0) + 1);
    const answer = (document: Document): void => line.reply(message(document, { to: request.id }));
    const aboutLogin = this.#login?.answer(name, request.command, line);
    if (aboutLogin !== undefined) return answer(aboutLogin);
    if (this.#primary !== member.index && !ANYWHERE.includes(name)) {
      return answer({
        ...notPrimary(request.command),
        topologyVersion: this.#topologyVersion(member),
      });
    }
    const refusal = this.#refusals.get(name);
    if (refusal !== undefined) {
      const { only, except, ...refused } = refusal;
      const asked = request.command[name];
      if ((only ?? asked) === asked && except !== asked) return answer(refused);
    }
    const deadlocks = (name === 'insert' && this.#deadlocks.get(request.command['insert'])) || 0;
    if (deadlocks > 0) {
      this.#deadlocks.set(request.command['insert'], deadlocks - 1);
      const documents = request.command['documents'] as readonly unknown[];
      const writeErrors = documents.map((_, index) => ({ ...DEADLOCK, index }));
      return answer({ ok: 1, n: 0, writeErrors });
    }
    const delayMs = name === 'insert' ? this.#insertDelays.get(request.command['insert']) : 0;
    if (delayMs) return answer(await this.#insertLate(request.command, delayMs));
    const reply = await this.#run(name, request, line);
    const hold = this.#holds.get(name);
    if (hold !== undefined) await new Promise((resolve) => setTimeout(resolve, hold));
    if (!request.oneWay) line.reply(reply);
  }

  /** By a connection of our own, because that of the client may have ended. */
  async #insertLate({ insert, documents, ordered, $db }: Document, delayMs: number) {
    await new Promise((resolve) => setTimeout(resolve, delayMs));
    return this.#client.db($db).command({ insert, documents, ordered });
  }

  async #answerHello(request: Request, line: Line, member: Seat): Promise<void> {
    if (request.legacy) return line.reply(legacyReply(this.#hello(member), request.id));
    const { topologyVersion, maxAwaitTimeMS } = request.command;
    let known = topologyVersion === undefined ? undefined : Number(topologyVersion.counter);
    do {
      if (known === this.#version) await this.#change(Number(maxAwaitTimeMS));
      // A hung or dead store makes its member silent.
      await line.forward({
        id: request.id,
        bytes: message({ ping: 1, $db: 'admin' }, { id: request.id }),
      });
      known = this.#version;
      line.reply(message(this.#hello(member), { to: request.id, moreToCome: request.exhaust }));
    } while (request.exhaust && !line.closed);
  }

  async #change(milliseconds: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([
      this.#changed.promise,
      new Promise((resolve) => {
        timer = setTimeout(resolve, milliseconds);
      }),
    ]);
    clearTimeout(timer);
  }

  /** The store's answer; a majority write gets it once there is a majority, or an error. */
  async #run(name: string, request: Request, line: Line): Promise<Buffer> {
    const { command, id } = request;
    const { txnNumber, ...rest } = command;
    if (txnNumber === undefined) return this.#write(name, request, line);
    // The one real store refuses retryable writes.
    const key = `${command['lsid']?.id?.toString('hex')} ${txnNumber}`;
    let first = this.#written.get(key);
    if (first === undefined) {
      first = this.#write(name, { ...request, bytes: message(rest, { id }) }, line);
      first.catch(() => this.#written.delete(key));
      this.#written.set(key, first);
      if (this.#written.size > REMEMBERED_WRITES)
        this.#written.delete(this.#written.keys().next().value!);
    }
    const reply = Buffer.from(await first);
    reply.writeInt32LE(id, 8);
    return reply;
  }

  async #write(name: string, request: Request, line: Line): Promise<Buffer> {
    const { command, id } = request;
    const stall = this.#stall;
    if (stall === undefined) return line.forward(request);
    if (command['readConcern']?.level === 'majority') {
      const found = bodyOf(await line.forward(request));
      const kept = await this.#images.unchanged(
        command['$db'],
        command[name],
        found['cursor']?.firstBatch ?? [],
      );
      return message({ ...found, cursor: { ...found['cursor'], firstBatch: kept } }, { to: id });
    }
    if (command['writeConcern']?.w !== 'majority') return line.forward(request);
    const reply = await this.#images.around(command, () => line.forward(request));
    const wtimeout = Number(command['writeConcern'].wtimeout ?? 0);
    let timer: NodeJS.Timeout | undefined;
    const timedOut = new Promise<'timed out'>((resolve) => {
      if (wtimeout > 0) timer = setTimeout(() => resolve('timed out'), wtimeout);
    });
    const end = await Promise.race([stall.promise, timedOut]);
    clearTimeout(timer);
    if (end === 'acknowledged') return reply;
    if (end === 'interrupted') return message(INTERRUPTED, { to: id });
    return message({ ...bodyOf(reply), writeConcernError: TIMED_OUT }, { to: id });
  }
}

// Answers that members of a replica set give without the store.

const DEADLOCK = { code: 112, errmsg: 'WriteConflict' };

const SET_NAME = 'rs0';
const MAX_WIRE_VERSION = 21;

/** The answer of a member that is not the primary; a numbered write may be repeated. */
function notPrimary(command: Document): Document {
  const error = { ok: 0, code: 10_107, codeName: 'NotWritablePrimary', errmsg: 'not primary' };
  return 'txnNumber' in command ? { ...error, errorLabels: ['RetryableWriteError'] } : error;
}

const INTERRUPTED = {
  ok: 0,
  code: 11_602,
  codeName: 'InterruptedDueToReplStateChange',
  errmsg: 'operation was interrupted',
};

/** The error of a write that no majority acknowledged in time. */
const TIMED_OUT = {
  code: 64,
  codeName: 'WriteConcernTimeout',
  errmsg: 'waiting for replication timed out',
  errInfo: { wtimeout: true },
};

function helloOf(member: {
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
