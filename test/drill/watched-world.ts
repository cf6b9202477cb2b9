/**
 * The world of the chaos runs with a Prometheus that scrapes all its processes, and partners that
 * send all the time.
 */
import { join } from 'node:path';
import { startPrometheus, type Prometheus } from '../../deploy/local/prometheus.ts';
import { Ledger } from '../chaos/ledger.ts';
import { startLoad, type Load } from '../chaos/load.ts';
import { Planner } from '../chaos/planner.ts';
import { seededRandom } from '../chaos/random.ts';
import { openChaosWorld, type ChaosWorld } from '../chaos/world.ts';
import { podsOf, type Pod } from './pods.ts';

const TARGETS_EVERY_MS = 250;

export interface WatchedWorld {
  readonly world: ChaosWorld;
  readonly prometheus: Prometheus;
  readonly load: Load;
  readonly pods: readonly Pod[];
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
    const pods = podsOf(world);
    opened.push(keepScraping(pods, prometheus));
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
    return { world, prometheus, load, pods, keyFolder: join(folder, 'partner-keys'), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Tells Prometheus of the processes as they come and go; gives what ends that. */
function keepScraping(pods: readonly Pod[], prometheus: Prometheus): () => void {
  let told = '';
  const timer = setInterval(() => {
    for (const pod of pods) pod.look();
    const targets = pods.flatMap((pod) => pod.target());
    const text = JSON.stringify(targets);
    if (text === told) return;
    told = text;
    void prometheus.scrape(targets);
  }, TARGETS_EVERY_MS);
  return () => clearInterval(timer);
}
