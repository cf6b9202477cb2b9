/** The world of the chaos runs with a Prometheus that scrapes all its processes, and partners that send all the time. */
import { join } from 'node:path';
import { startPrometheus, type Prometheus, type ScrapeTarget } from '../../deploy/local/prometheus.ts';
import { NAMESPACE } from '../chart/rules.ts';
import { Ledger } from '../chaos/ledger.ts';
import { startLoad, type Load } from '../chaos/load.ts';
import { Planner } from '../chaos/planner.ts';
import { seededRandom } from '../chaos/random.ts';
import { openChaosWorld, type ChaosWorld, type Slot } from '../chaos/world.ts';

const TARGETS_EVERY_MS = 250;

export interface WatchedWorld {
  readonly world: ChaosWorld;
  readonly prometheus: Prometheus;
  readonly load: Load;
  readonly keyFolder: string;
  close(): Promise<void>;
}

/** Opens everything and starts the load; whatever was opened is closed again when that fails. */
export async function openWatchedWorld(options: {
  readonly folder: string;
  /** A rule file. */
  readonly rules: string;
  readonly everySeconds: number;
  readonly perSecond: number;
  readonly seed: number;
  readonly signal: AbortSignal;
  readonly log: (line: string) => void;
}): Promise<WatchedWorld> {
  const { folder, signal, log, everySeconds } = options;
  const opened: (() => Promise<unknown> | void)[] = [];
  const close = async (): Promise<void> => {
    for (const end of opened.splice(0).toReversed()) await end();
  };
  try {
    const prometheus = await startPrometheus({
      folder: join(folder, 'prometheus'),
      everySeconds,
      rules: options.rules,
      log,
    });
    opened.push(() => prometheus.stop());
    const world = await openChaosWorld({ folder, random: seededRandom(options.seed), signal, log });
    opened.push(() => world.close());
    opened.push(keepScraping(world, prometheus));
    const ledger = new Ledger(join(folder, 'ledger.jsonl'));
    opened.push(() => ledger.close());
    const random = seededRandom(options.seed + 1);
    const load = startLoad({
      planner: new Planner(random),
      random,
      ledger,
      keys: world.keys,
      targets: () => world.targets(),
      phase: () => 'drill',
      perSecond: options.perSecond,
    });
    opened.push(() => load.stop());
    return { world, prometheus, load, keyFolder: join(folder, 'partner-keys'), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Tells Prometheus of the processes as they come and go; gives what ends that. */
function keepScraping(world: ChaosWorld, prometheus: Prometheus): () => void {
  const pods = world.slots.map((slot) => new Pod(slot));
  let told = '';
  const timer = setInterval(() => {
    const targets = pods.flatMap((pod) => pod.target());
    const text = JSON.stringify(targets);
    if (text === told) return;
    told = text;
    void prometheus.scrape(targets);
  }, TARGETS_EVERY_MS);
  return () => clearInterval(timer);
}

/** What Kubernetes would call a slot: a container that died starts again in its pod, one that ended well leaves it to a new one. */
class Pod {
  readonly #slot: Slot;
  #process: Slot['process'];
  #number = 1;

  constructor(slot: Slot) {
    this.#slot = slot;
  }

  target(): ScrapeTarget[] {
    const current = this.#slot.process;
    if (current !== undefined && current !== this.#process) {
      if (this.#process?.child.exitCode === 0) this.#number += 1;
      this.#process = current;
    }
    if (this.#process === undefined) return [];
    const pod = `${this.#slot.label}-${this.#number}`;
    const labels = {
      namespace: NAMESPACE,
      job: `${NAMESPACE}/${NAMESPACE}`,
      container: this.#slot.name,
      pod,
      instance: pod,
    };
    return [{ adminUrl: this.#process.adminUrl, labels }];
  }
}
