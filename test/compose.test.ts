/**
 * compose.yaml starts the processes with settings that they take, on the servers that it
 * brings.
 */
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { loadConfig } from '../internal/settings/settings.ts';
import { read } from './support/pages.ts';

interface Service {
  readonly image: string;
  readonly command: readonly string[] | string;
  readonly environment?: Readonly<Record<string, string>>;
  readonly ports?: readonly string[];
}

const { services } = parse(read('compose.yaml'), { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>;
};

test.each(['ingest', 'processor', 'controller', 'console'] as const)(
  '%s accepts its settings',
  (name) => {
    const { environment = {}, command } = services[name] ?? { command: '' };
    expect(command).toEqual([`dist/cmd/${name}/main.js`]);
    expect(() => loadConfig(name, environment)).not.toThrow();
    const hosts = Object.values(environment).flatMap((value) =>
      [...value.matchAll(/(?:mongodb|redis|smtp|http):\/\/([\w-]+):/g)].map(
        ([, host = '']) => host,
      ),
    );
    expect(hosts.filter((host) => !(host in services))).toEqual([]);
  },
);

test('the servers are the same as in the evaluation of the chart', () => {
  const { evaluation } = parse(read('charts/partner-ingest/values.yaml')) as {
    readonly evaluation: Readonly<Record<'mongodb' | 'redis' | 'mail', { readonly image: string }>>;
  };
  for (const name of ['mongodb', 'redis', 'mail'] as const) {
    expect(services[name]?.image).toBe(evaluation[name].image);
  }
});

test('no port is open to other machines', () => {
  const ports = Object.values(services).flatMap((service) => service.ports ?? []);
  expect(ports.length).toBeGreaterThan(0);
  expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([]);
});
