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
  readonly configs?: readonly { readonly source: string; readonly target: string }[];
}

const { services, configs } = parse(read('compose.yaml'), { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>;
  readonly configs: Readonly<Record<string, { readonly file?: string }>>;
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
    const { image } = evaluation[name];
    expect(services[name]?.image).toBe(image);
  }
});

test('no port is open to other machines', () => {
  const ports = Object.values(services).flatMap((service) => service.ports ?? []);
  expect(ports.length).toBeGreaterThan(0);
  expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([]);
});

test('the link in the e-mail opens the login page, which runs in the image', () => {
  const { port, href } = new URL(services['processor']?.environment?.['LOGIN_URL'] ?? 'none:');
  expect(href).toBe(`http://127.0.0.1:${port}/`);
  const page = Object.values(services).find(({ ports = [] }) =>
    ports.some((each) => each.startsWith(`127.0.0.1:${port}:`)),
  );
  expect(page).toMatchObject({ ports: [`127.0.0.1:${port}:${page?.environment?.['PORT']}`] });
  const [{ source, target } = { source: '', target: '' }] = page?.configs ?? [];
  expect(target).toBe(`/app/${String(page?.command)}`);
  expect(configs[source]?.file).toBe('deploy/local/login-page.ts');
  // The image has the service's own dependencies only, and nothing beside the file.
  const { dependencies } = JSON.parse(read('package.json')) as { dependencies: object };
  const imported = [...read('deploy/local/login-page.ts').matchAll(/ from '([^']+)';/g)].map(
    ([, name = '']) => name,
  );
  expect(imported.filter((name) => !name.startsWith('node:') && !(name in dependencies))).toEqual(
    [],
  );
});
