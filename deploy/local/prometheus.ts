// Prometheus and promtool for tests, the drill and the picture of the dashboard: from the PATH, or
// out of Debian's package.

import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cached, exists, installLog } from './stores/cache.ts';
import { answersWell, findProgram, run, startProcess, waitUntilUp } from './stores/process.ts';
import { freePort, logTail } from './stores/wait.ts';

const PART = 'prometheus-1';
const APT_TIMEOUT_MS = 5 * 60_000;
const UNPACK_TIMEOUT_MS = 60_000;
const READY_TIMEOUT_MS = 30_000;
const QUERY_TIMEOUT_MS = 20_000;

export interface PrometheusPrograms {
  readonly prometheus: string;
  readonly promtool: string;
}

/** The two programs; rejects with the reason when this machine cannot have them. */
export async function prometheusPrograms(log: (line: string) => void): Promise<PrometheusPrograms> {
  const [prometheus, promtool] = await Promise.all([
    findProgram('prometheus'),
    findProgram('promtool'),
  ]);
  if (prometheus !== undefined && promtool !== undefined) return { prometheus, promtool };
  if ((await findProgram('apt-get')) === undefined) {
    throw new Error(
      'prometheus and promtool are not on the PATH, and without apt-get they cannot be fetched',
    );
  }
  const path = await cached(PART, log, async (folder) => {
    log('fetching Prometheus out of a Debian package (once)');
    await unpack(folder);
  });
  return { prometheus: join(path, 'usr/bin/prometheus'), promtool: join(path, 'usr/bin/promtool') };
}

/** Debian's package is only unpacked, not installed: that needs no root, and starts no server. */
async function unpack(path: string): Promise<void> {
  await mkdir(path, { recursive: true });
  const logFile = installLog('prometheus');
  const download = ['sh', '-c', 'cd "$1" && apt-get -q download prometheus', 'sh', path];
  const settings = {
    logFile,
    timeoutMs: APT_TIMEOUT_MS,
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  };
  try {
    await run({ ...settings, command: download });
  } catch {
    // A fresh machine has no lists of packages yet; only root may fetch them.
    await run({ ...settings, command: ['apt-get', '-q', 'update'] }).catch(() => undefined);
    await run({ ...settings, command: download });
  }
  const archive = (await readdir(path)).find((name) => name.endsWith('.deb'));
  if (archive === undefined)
    throw new Error(`apt-get brought no package; ${await logTail(logFile)}`);
  await run({
    logFile,
    timeoutMs: UNPACK_TIMEOUT_MS,
    command: ['dpkg-deb', '-x', join(path, archive), path],
  });
  await rm(join(path, archive));
  if (!(await exists(join(path, 'usr/bin/promtool'))))
    throw new Error('the package holds no promtool');
}

/** What is scraped: the address of an admin port and the labels Kubernetes would give it. */
export interface ScrapeTarget {
  readonly adminUrl: string;
  readonly labels: Readonly<Record<string, string>>;
}

export type Prometheus = Awaited<ReturnType<typeof startPrometheus>>;

/**
 * Starts a server on loopback that scrapes and evaluates `rules` (a rule file's text) every
 * `everySeconds`.
 */
export async function startPrometheus(options: {
  /** For data, configuration and log; emptied first. */
  readonly folder: string;
  readonly everySeconds: number;
  readonly rules?: string;
  readonly log: (line: string) => void;
}) {
  const { folder, everySeconds } = options;
  const { prometheus } = await prometheusPrograms(options.log);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const [targetFile, configFile, logFile] = [
    'targets.json',
    'prometheus.json',
    'prometheus.log',
  ].map((name) => join(folder, name)) as [string, string, string];
  await writeFile(join(folder, 'rules.yaml'), options.rules ?? 'groups: []\n');
  await writeFile(targetFile, '[]');
  // YAML's subset that JSON is.
  const config = {
    global: {
      scrape_interval: `${everySeconds}s`,
      evaluation_interval: `${everySeconds}s`,
      scrape_timeout: `${everySeconds}s`,
    },
    rule_files: ['rules.yaml'],
    scrape_configs: [
      {
        job_name: 'partner-ingest',
        file_sd_configs: [{ files: [targetFile], refresh_interval: '1s' }],
      },
    ],
  };
  await writeFile(configFile, JSON.stringify(config, null, 2));
  const port = await freePort();
  const server = await startProcess({
    command: [
      prometheus,
      `--config.file=${configFile}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
    ],
    logFile,
    wrapped: false,
  });
  const url = `http://127.0.0.1:${port}`;
  await waitUntilUp('prometheus', server, READY_TIMEOUT_MS, () => answersWell(`${url}/-/ready`));
  return {
    url,
    /** Replaces what is scraped; taken up within a second. */
    async scrape(targets: readonly ScrapeTarget[]): Promise<void> {
      const groups = targets.map(({ adminUrl, labels }) => ({
        targets: [new URL(adminUrl).host],
        labels,
      }));
      // Renamed into its place, so that it is never read half-written.
      await writeFile(`${targetFile}.new`, JSON.stringify(groups));
      await rename(`${targetFile}.new`, targetFile);
    },
    alerts: async () => {
      const signal = AbortSignal.timeout(QUERY_TIMEOUT_MS);
      const response = await fetch(`${url}/api/v1/alerts`, { signal });
      if (!response.ok) throw new Error(`alerts: ${response.status}`);
      const { data } = (await response.json()) as {
        data: {
          alerts: {
            labels: Record<string, string>;
            state: 'pending' | 'firing';
            activeAt: string;
          }[];
        };
      };
      return data.alerts.map(({ labels, state, activeAt }) => ({
        name: labels['alertname'] ?? '',
        state,
        /** Since when its condition holds. */
        since: new Date(activeAt),
        labels,
      }));
    },
    stop: () => server.end('SIGTERM'),
  };
}
