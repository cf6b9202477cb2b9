/** Leadership by a Kubernetes Lease: one holder at a time, and terms that outrank one another even if the Lease is lost. */
import { randomBytes } from 'node:crypto';
import { V1MicroTime, type CoordinationV1Api, type V1Lease } from '@kubernetes/client-node';
import { MongoError } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { backoffMs, pause } from '../platform/deadline.ts';
import { kubernetesReason, kubernetesStatus } from '../platform/kubernetes.ts';
import type { Logger } from '../platform/log.ts';
import type { KeyStore, Writer } from '../partner/key-store.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { Election, TermWork } from './election.ts';
import {
  FAILURE_BACKOFF,
  LEASE_LOOK_EVERY_MS,
  LEASE_MAX_SECONDS,
  LEASE_SECONDS,
  LEASE_STALE_MS,
  RENEW_DEADLINE_MS,
  RENEW_EVERY_MS,
} from './limits.ts';

const [NOT_FOUND, CONFLICT] = [404, 409];
/** The id of this installation: two clusters may have the same namespace and Lease name, and share a database. */
const INSTALLATION = 'partner-ingest.io/installation';
/** Until it is done: the Lease is of a version without ids, whose keys belong to the owner named here. */
const TAKES_OVER = 'partner-ingest.io/takes-over';

export interface LeaseTools {
  readonly leases: CoordinationV1Api;
  readonly namespace: string;
  readonly name: string;
  /** Names this process, and no other that ever was. */
  readonly holder: string;
  readonly store: KeyStore;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Pick<ControllerMetrics, 'leader'>;
}

export class LeaseElection implements Election {
  readonly #tools: LeaseTools;
  /** The Lease as last seen, and when its holder last gave a sign of life: by our own clock, as no two agree. */
  #lastSign: { readonly version: string | undefined; readonly sinceMs: number } | undefined;
  #seenHeldAtMs = -Infinity;
  /** As last seen: a Lease that is deleted while one of its controllers runs gets the same again. */
  #installation: string | undefined;
  #leading = false;
  #fault = 'nobody has been seen to hold it yet';

  constructor(tools: LeaseTools) {
    this.#tools = tools;
  }

  faults(): readonly string[] {
    const { clock, namespace, name } = this.#tools;
    if (this.#leading || clock.monotonicMs() - this.#seenHeldAtMs < LEASE_STALE_MS) return [];
    return [`the Lease ${namespace}/${name} cannot be used: ${this.#fault}`];
  }

  async run(work: TermWork, stop: AbortSignal): Promise<void> {
    const { log, store, metrics } = this.#tools;
    let failures = 0;
    while (!stop.aborted) {
      try {
        const held = await this.#tryToAcquire();
        failures = 0;
        if (held === undefined) {
          await pause(LEASE_LOOK_EVERY_MS, stop);
          continue;
        }
        await this.#leadWith(held, stop, async (signal) => {
          const term = held.lease.spec?.leaseTransitions ?? 0;
          // Refused only if the Lease was lost meanwhile, and somebody else claimed first.
          const writer = { owner: this.#owner(), term };
          if (!(await store.claimTerm(writer))) return;
          await this.#takeOver(held, writer);
          log.info(writer, 'leading');
          this.#leading = true;
          metrics.leader.set(1);
          await work(writer, signal);
        });
      } catch (error) {
        failures += 1;
        this.#fault = error instanceof MongoError ? 'MongoDB does not answer' : kubernetesReason(error);
        log[failures === 1 ? 'warn' : 'debug']({ err: error, reason: this.#fault }, 'cannot lead; trying again');
        await pause(backoffMs(failures, FAILURE_BACKOFF), stop);
      }
    }
  }

  /** Renews the Lease while `lead` works; gives it back when that ends, so that another need not wait for it to expire. */
  async #leadWith(held: Held, stop: AbortSignal, lead: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const ended = new AbortController();
    const lost = new AbortController();
    const renewing = this.#renew(held, ended.signal).then(() => lost.abort());
    try {
      await lead(AbortSignal.any([stop, lost.signal]));
    } finally {
      if (this.#leading) this.#tools.log.info('no longer leading');
      this.#leading = false;
      this.#tools.metrics.leader.set(0);
      ended.abort();
      await renewing;
      await this.#release(held);
    }
  }

  /** The Lease, if it is free or its holder has given no sign of life for its whole duration; else undefined. */
  async #tryToAcquire(): Promise<Held | undefined> {
    const { leases, namespace, name, clock, store } = this.#tools;
    const lease = await this.#read();
    if (lease !== undefined && !this.#isFree(lease)) {
      this.#seenHeldAtMs = clock.monotonicMs();
      return undefined;
    }
    const annotations = this.#annotations(lease);
    // A Lease that somebody deleted counts from nothing again; keys remember how far it had come.
    const term = Math.max(lease?.spec?.leaseTransitions ?? 0, await store.currentTerm(this.#owner())) + 1;
    const renewedAtMs = clock.monotonicMs();
    const now = new V1MicroTime();
    // Labels and whatever else others gave the Lease stay.
    const body = lease ?? {};
    body.metadata ??= { namespace, name };
    body.metadata.annotations = annotations;
    body.spec = { ...this.#signOfLife(now), leaseTransitions: term, acquireTime: now };
    try {
      const written =
        lease === undefined
          ? await leases.createNamespacedLease({ namespace, body })
          : await leases.replaceNamespacedLease({ namespace, name, body });
      return { lease: written, renewedAtMs };
    } catch (error) {
      // Somebody was faster.
      if (kubernetesStatus(error) === CONFLICT) return undefined;
      throw error;
    }
  }

  /** With the installation's id: the one the Lease has, the one it had when last seen, or a new one. */
  #annotations(lease: V1Lease | undefined): Record<string, string> {
    const annotations = { ...lease?.metadata?.annotations };
    // Only a Lease that was held before can be of an earlier version: a new one may be that of a second cluster.
    const isOld = this.#installation === undefined && (lease?.spec?.leaseTransitions ?? 0) > 0;
    this.#installation ??= randomBytes(8).toString('hex');
    annotations[INSTALLATION] = this.#installation;
    if (isOld) annotations[TAKES_OVER] = this.#withoutId();
    return annotations;
  }

  #withoutId(): string {
    return `kubernetes:${this.#tools.namespace}/${this.#tools.name}`;
  }

  #owner(): string {
    return `${this.#withoutId()}/${this.#installation}`;
  }

  /** Makes the keys of the version without ids ours, once; a process that ends before leaves it to the next leader. */
  async #takeOver({ lease: { metadata } }: Held, writer: Writer): Promise<void> {
    const former = metadata?.annotations?.[TAKES_OVER];
    if (former === undefined) return;
    const keys = await this.#tools.store.takeOver(former, writer);
    this.#tools.log.info({ former, keys, owner: writer.owner }, 'keys of the owner without an id taken over');
    // The next renewal writes this.
    delete metadata?.annotations?.[TAKES_OVER];
  }

  async #read(): Promise<V1Lease | undefined> {
    const { leases, namespace, name } = this.#tools;
    try {
      const lease = await leases.readNamespacedLease({ namespace, name });
      this.#installation = lease.metadata?.annotations?.[INSTALLATION] ?? this.#installation;
      return lease;
    } catch (error) {
      if (kubernetesStatus(error) === NOT_FOUND) return undefined;
      throw error;
    }
  }

  #isFree(lease: V1Lease): boolean {
    const { clock } = this.#tools;
    if ((lease.spec?.holderIdentity ?? '') === '') return true;
    const version = lease.metadata?.resourceVersion;
    if (this.#lastSign === undefined || this.#lastSign.version !== version) {
      this.#lastSign = { version, sinceMs: clock.monotonicMs() };
    }
    const seconds = Math.min(lease.spec?.leaseDurationSeconds ?? LEASE_SECONDS, LEASE_MAX_SECONDS);
    return clock.monotonicMs() - this.#lastSign.sinceMs > seconds * 1_000;
  }

  /** Resolves when `ended` aborts, or as soon as the Lease can no longer be trusted to be ours. */
  async #renew(held: Held, ended: AbortSignal): Promise<void> {
    const { leases, namespace, name, clock, log } = this.#tools;
    const trustedUntilMs = (): number => held.renewedAtMs + RENEW_DEADLINE_MS;
    while (!ended.aborted) {
      await pause(Math.max(0, Math.min(RENEW_EVERY_MS, trustedUntilMs() - clock.monotonicMs())), ended);
      if (ended.aborted) return;
      const sentAtMs = clock.monotonicMs();
      // Asked before sending, because a process that stood still must not come back as the leader.
      if (sentAtMs >= trustedUntilMs()) {
        log.warn('the Lease could not be renewed in time');
        return;
      }
      try {
        Object.assign(held.lease.spec ?? {}, this.#signOfLife(new V1MicroTime()));
        held.lease = await leases.replaceNamespacedLease({ namespace, name, body: held.lease });
        held.renewedAtMs = sentAtMs;
      } catch (error) {
        log.debug({ err: error }, 'Lease not renewed');
        if (![CONFLICT, NOT_FOUND].includes(kubernetesStatus(error) ?? 0)) continue;
        // A renewal whose answer was lost has changed the version, too: then the holder is still us.
        const current = await this.#read().catch(() => held.lease);
        if (current?.spec?.holderIdentity !== this.#tools.holder) return;
        held.lease = current;
      }
    }
  }

  async #release(held: Held): Promise<void> {
    const { leases, namespace, name, log } = this.#tools;
    try {
      Object.assign(held.lease.spec ?? {}, {
        holderIdentity: '',
        leaseDurationSeconds: 1,
        renewTime: new V1MicroTime(),
      });
      await leases.replaceNamespacedLease({ namespace, name, body: held.lease });
    } catch (error) {
      log.debug({ err: error }, "Lease not given back: it is another one's, or it expires");
    }
  }

  #signOfLife(renewTime: V1MicroTime) {
    return { holderIdentity: this.#tools.holder, leaseDurationSeconds: LEASE_SECONDS, renewTime };
  }
}

interface Held {
  lease: V1Lease;
  /** When the renewal was sent that is known to have arrived. */
  renewedAtMs: number;
}
