/**
 * Makes, by a running version and its own commands, every state of the state table and everything
 * else that the stores hold for long: keys and their bounds, flags of partners, delayed jobs.
 */
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_HOLDS } from '../../internal/partner/flags.ts';
import { states, type State } from '../../internal/submission/states.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { endOf } from '../../tools/program.ts';
import type { Load } from '../faults/load.ts';
import type { ChaosWorld } from '../faults/world.ts';
import { send, type Answer } from '../support/http.ts';
import type { SmtpFault } from '../support/mail-catcher.ts';
import { sumOf } from '../support/metrics-text.ts';
import { HANG_MS, HEAL_HANG_MS, eventually } from '../support/wait.ts';

/** The User-Agent of these requests, which the audit of the load leaves out. */
export const MAKER_AGENT = 'upgrade';
const DOMAIN = 'upgrade.example';

const REJUDGED = ['--since', '1d', '--rate', '1000000', '--json'];
const SIGNED = ['--as', 'upgrade', '--why', 'upgrade'];

export interface Version {
  readonly name: string;
  readonly folder: string;
}

interface Maker {
  /** Makes a request in this state, in which it stays until it is woken; resolves to its id. */
  make(desk: Desk): Promise<string>;
  /** The command by which an operator lets it go on. */
  readonly wake?: 'retry' | 'reopen';
  readonly ends: State;
}

const mailFaults: Readonly<Record<string, SmtpFault>> = {
  later: { at: 'rcpt', answer: { code: 451, message: '4.7.1 try again later' } },
  refused: { at: 'rcpt', answer: { code: 550, message: '5.1.1 no such user' } },
  cut: { at: 'data', cut: 'before-store' },
};

export const makers: Readonly<Record<State, Maker>> = {
  recorded: { make: (desk) => desk.accepted('held'), ends: 'completed' },
  // Delayed jobs try it again and again.
  account_created: {
    make: async (desk) => {
      const id = await desk.accepted('free', 'later');
      await eventually('a first try', async () => (await desk.record(id))?.lastError !== undefined);
      return id;
    },
    wake: 'retry',
    ends: 'completed',
  },
  completed: {
    make: (desk) => desk.becomes('completed', desk.accepted('free')),
    ends: 'completed',
  },
  rejected: {
    make: (desk) => desk.becomes('rejected', desk.sent('free', '{}', 202)),
    ends: 'rejected',
  },
  undeliverable: {
    make: (desk) => desk.becomes('undeliverable', desk.accepted('free', 'refused')),
    wake: 'retry',
    ends: 'completed',
  },
  closed: {
    make: async (desk) => {
      const id = await desk.accepted('held');
      await desk.command('close', id, '--yes');
      return id;
    },
    wake: 'reopen',
    ends: 'completed',
  },
  dead_lettered: {
    make: async (desk) => {
      const id = await desk.accepted('free', 'cut');
      const look = async (): Promise<boolean> => {
        const { state, dueAt = new Date(0) } = (await desk.record(id))!;
        // The next try would come after half a minute, and the last after 50.
        if (dueAt > new Date()) await desk.tryCommand('retry', id);
        return state === 'dead_lettered';
      };
      await eventually('a dead letter', look, HEAL_HANG_MS);
      return id;
    },
    wake: 'retry',
    ends: 'completed',
  },
  malformed: { make: (desk) => desk.sent('free', '{', 400), ends: 'malformed' },
  refused: { make: (desk) => desk.sent('disabled', '{}', 403), ends: 'refused' },
  withdrawn: {
    // Records behind a hung write are never written.
    make: async (desk) => {
      const { world, load } = desk;
      await load.pause();
      await world.mongo.signal('SIGSTOP');
      try {
        const id = await desk.sent('free', '{}', 500);
        await world.mongo.signal('SIGCONT');
        return await desk.becomes('withdrawn', id);
      } finally {
        load.resume();
      }
    },
    ends: 'withdrawn',
  },
};

/** The status that each partner's key is answered with, by every version. */
const partners = {
  free: 202,
  held: 202,
  disabled: 403,
  inactive: 403,
  revoked: 401,
  bounded: 202,
} as const;
type Partner = keyof typeof partners;

/** Everything that one version has made. */
export class Desk {
  readonly world: ChaosWorld;
  readonly load: Load;
  readonly #version: Version;
  readonly #keys = {} as Record<Partner, string>;
  readonly #made = new Map<State, string>();
  #keysAdded = 0;
  #woken = false;
  #changes = 0;
  readonly #recipients = new Map<string, string>();
  #sent = 0;

  constructor(world: ChaosWorld, load: Load, version: Version) {
    this.world = world;
    this.load = load;
    this.#version = version;
  }

  get changes(): number {
    return this.#changes;
  }

  async makeAll(): Promise<void> {
    await Promise.all((Object.keys(partners) as Partner[]).map((name) => this.#addPartner(name)));
    await this.#setFlags();
    // One after another, because one of them stops the database.
    for (const state of states) this.#made.set(state, await makers[state].make(this));
    await this.check();
  }

  /** Wakes everything by the commands of `version`, and waits until it has ended as it must. */
  async wake(version: Version): Promise<void> {
    this.#woken = true;
    for (const [state, id] of this.#made) {
      const { wake } = makers[state];
      if (wake === undefined) continue;
      const confirmed = wake === 'reopen' ? ['--yes'] : [];
      await this.#commandOf(version, wake, id, ...confirmed);
    }
    await this.#commandOf(version, 'partner', 'release', this.#idOf('held'));
    for (const [state, id] of this.#made) await this.becomes(makers[state].ends, id);
    await this.#checkMails();
  }

  /** Checks the answer for each key at each ingest, and that waiting requests still wait. */
  async check(): Promise<void> {
    for (const { process: ingest, label } of this.world.slotsOf('ingest')) {
      for (const [name, wanted] of Object.entries(partners) as [Partner, number][]) {
        if (wanted === 202) continue;
        const { status } = await post(ingest!.url, this.#keys[name], '{');
        if (status !== wanted)
          throw new Error(`${label} answered the ${name} key ${status} in place of ${wanted}`);
      }
    }
    for (const [state, id] of this.#made) {
      const { state: found, lastError = '' } = (await this.record(id))!;
      const wanted = this.#woken ? makers[state].ends : state;
      const waits = wanted !== 'account_created' || lastError.includes('451');
      if (found !== wanted || !waits)
        throw new Error(`${id}, ${state} by ${this.#version.name}, is ${found}: ${lastError}`);
    }
  }

  /** Adds a key and waits until each ingest knows it. */
  async addKey(): Promise<void> {
    this.#keysAdded += 1;
    const key = newApiKey();
    const partner = `${this.#version.name}-added-${this.#keysAdded}`;
    await writePartnerSecret(this.world.keyFolder, { partner, keys: [key] });
    await this.#answered(key, 202);
  }

  /** The relay's fault for a recipient of these requests. */
  faultOf(recipient = ''): SmtpFault | undefined {
    const isOurs = recipient.endsWith(`@${this.#version.name}.${DOMAIN}`);
    return isOurs && !this.#woken ? mailFaults[recipient.split('-')[0] ?? ''] : undefined;
  }

  async record(id: string): Promise<SubmissionRecord | null> {
    return this.world.db.collection<SubmissionRecord>(SUBMISSIONS).findOne({ _id: id });
  }

  async becomes(state: State, request: string | Promise<string>): Promise<string> {
    const id = await request;
    const look = async (): Promise<boolean> => {
      const found = (await this.record(id))?.state;
      if (found !== state) throw new Error(`it is ${found}`);
      return true;
    };
    await eventually(`${id} to be ${state}`, look, HEAL_HANG_MS);
    return id;
  }

  /** Submits an application; `fault` is the relay's fault for its e-mails. */
  async accepted(partner: Partner, fault = 'well'): Promise<string> {
    this.#sent += 1;
    const email = `${fault}-${this.#sent}@${this.#version.name}.${DOMAIN}`;
    const number = this.#sent + (this.#version.name === 'base' ? 0 : 500);
    const ein = String(900_000_000 + number);
    const body = JSON.stringify({ email, business_name: 'Made Ltd', ein });
    const id = await this.sent(partner, body, 202);
    this.#recipients.set(id, email);
    return id;
  }

  async sent(partner: Partner, body: string, wanted: number): Promise<string> {
    const [target] = this.world.targets();
    const { status, headers } = await post(target!.url, this.#keys[partner], body);
    if (status !== wanted) throw new Error(`${partner} was answered ${status}, not ${wanted}`);
    return headers['x-request-id'] ?? '';
  }

  command(...words: readonly string[]): Promise<void> {
    return this.#commandOf(this.#version, ...words);
  }

  async tryCommand(...words: readonly string[]): Promise<number | null> {
    return (await this.#run(this.#version, words)).code;
  }

  /** Returns what this version would decide otherwise of what either has decided. */
  async rejudged(): Promise<string[]> {
    const { code, out, err } = await this.#run(this.#version, ['rejudge', ...REJUDGED]);
    if (code !== 0 && code !== 1) throw new Error(err);
    const lines = out.trim().split('\n').slice(0, -1);
    return lines.map((line) => `${this.#version.name} would decide otherwise: ${line}`);
  }

  /** A worker may hold the record for a moment. */
  async #commandOf(version: Version, ...words: readonly string[]): Promise<void> {
    await eventually(`${version.name}: partner-ingest ${words.join(' ')}`, async () => {
      const { code, err } = await this.#run(version, words);
      if (code !== 0) throw new Error(err);
      return true;
    });
    this.#changes += 1;
  }

  #run({ folder }: Version, words: readonly string[]) {
    const signed = words[0] === 'audit' || words[0] === 'rejudge' ? [] : SIGNED;
    const args = ['cmd/cli/main.ts', ...words, ...signed];
    const env = { PATH: process.env['PATH'], ...this.world.environment };
    return endOf(process.execPath, args, { cwd: folder, env, timeoutMs: HANG_MS });
  }

  #idOf(partner: Partner): string {
    return `${partner}-${this.#version.name}`;
  }

  async #addPartner(name: Partner): Promise<void> {
    const key = (this.#keys[name] = newApiKey());
    const annotations = { 'partner-ingest.io/max-per-minute': '1000' };
    await writePartnerSecret(this.world.keyFolder, {
      partner: this.#idOf(name),
      keys: [key],
      ...(name === 'inactive' ? { status: 'inactive' } : {}),
      ...(name === 'bounded' ? { annotations } : {}),
    });
    await this.#answered(key, name === 'inactive' ? 403 : 202);
  }

  async #setFlags(): Promise<void> {
    await this.command('partner', 'hold', this.#idOf('held'));
    await this.command('partner', 'disable', this.#idOf('disabled'));
    await this.command('keys', 'revoke', hashApiKey(this.#keys.revoked).slice(0, 12), '--yes');
    for (const name of ['disabled', 'revoked'] as const)
      await this.#answered(this.#keys[name], partners[name]);
    const held = await this.#held();
    for (const { process: processor } of this.world.slotsOf('processor'))
      await eventually(
        'the processor to know of the hold',
        async () => (await metricOf(processor!.adminUrl, 'partner_ingest_partners_held')) === held,
      );
  }

  #held(): Promise<number> {
    return this.world.db.collection(PARTNER_HOLDS).countDocuments({ isSet: true });
  }

  #answered(key: string, wanted: number): Promise<unknown> {
    const all = this.world.targets().map(({ url, instance }) =>
      eventually(`${instance} to answer a key ${wanted}`, async () => {
        const { status } = await post(url, key, '{}');
        if (status !== wanted) throw new Error(`it is answered ${status}`);
        return true;
      }),
    );
    return Promise.all(all);
  }

  async #checkMails(): Promise<void> {
    this.world.facts.collectMails();
    for (const [id, email] of this.#recipients) {
      const count = this.world.facts.mails.filter(({ to }) => to === email).length;
      if (count !== 1) throw new Error(`${id} was mailed ${count} times`);
    }
  }
}

async function metricOf(adminUrl: string, name: string): Promise<number> {
  return sumOf(await (await fetch(`${adminUrl}/metrics`)).text(), name);
}

function post(url: string, key: string, body: string): Promise<Answer> {
  return send(url, { key, body, headers: { 'user-agent': MAKER_AGENT } });
}

/** Says whether an account or a mail belongs to these requests. */
export const isMade = (address: string): boolean => address.endsWith(`.${DOMAIN}`);
