/**
 * Docker and `make release` make the same image: one script makes the files, and the Dockerfile
 * says how they are run.
 */
import { expect, test } from '@jest/globals';
import { ROOT } from '../root.ts';
import { read } from '../../test/support/pages.ts';
import { imageConfig, stages } from './dockerfile.ts';
import { run } from '../program.ts';

const dockerfile = read('Dockerfile');

test('the image is run as the Dockerfile says', () => {
  expect(imageConfig(dockerfile, { VERSION: '1.2.3', REVISION: 'abc' })).toMatchObject({
    User: '10001:10001',
    WorkingDir: '/app',
    Entrypoint: ['node'],
    Cmd: ['dist/cmd/ingest/main.js'],
    ExposedPorts: { '8080/tcp': {}, '9090/tcp': {} },
    Labels: {
      'org.opencontainers.image.version': '1.2.3',
      'org.opencontainers.image.revision': 'abc',
    },
  });
});

test.each([
  'RUN touch /app/more',
  'VOLUME /data',
  'COPY README.md ./',
  'COPY --from=program /out/app /app',
])('a last stage with %s is refused, because `make release` would not have it', (line) =>
  expect(() => imageConfig(`${dockerfile}\n${line}\n`, {})).toThrow(),
);

/** Whether .dockerignore keeps the path from Docker: the last line that matches it decides. */
function isIgnored(path: string): boolean {
  const parents = path.split('/').map((_, index, parts) => parts.slice(0, index + 1).join('/'));
  return read('.dockerignore')
    .split('\n')
    .filter((line) => line !== '')
    .reduce((ignored, line) => {
      const pattern = line.replace(/^!/, '').replaceAll('.', '\\.');
      const expression = new RegExp(
        `^${pattern.replace('**/', '(?:.*/)?').replaceAll(/(?<![.)])\*/g, '[^/]*')}$`,
      );
      return parents.some((one) => expression.test(one)) ? !line.startsWith('!') : ignored;
    }, false);
}

/** The files that Docker copies into the stage. */
function copiedInto(stage: string, tracked: readonly string[]): string[] {
  const { instructions } = stages(dockerfile).find(({ name }) => name === stage) ?? {
    instructions: [],
  };
  const sources = instructions
    .filter(({ name }) => name === 'COPY')
    .flatMap(({ rest }) => rest.split(/\s+/).slice(0, -1));
  return tracked.filter(
    (path) => sources.some((one) => path === one || path.startsWith(`${one}/`)) && !isIgnored(path),
  );
}

test('Docker gets exactly the files that the image is made of', async () => {
  const tracked = (
    await run('git', ['ls-files', '--cached', '--others', '--exclude-standard'], { cwd: ROOT })
  ).out
    .trim()
    .split('\n')
    .toSorted();
  const code = tracked.filter(
    (path) => /^(cmd|internal)\//.test(path) && !path.endsWith('.test.ts'),
  );
  const packages = ['.npmrc', 'package-lock.json', 'package.json'];
  const script = 'deploy/image/files.sh';
  expect(code.length).toBeGreaterThan(100);
  expect(copiedInto('dependencies', tracked)).toEqual([...packages, script].toSorted());
  expect(copiedInto('program', tracked)).toEqual(
    [...code, ...packages, script, 'LICENSE', 'tsconfig.build.json', 'tsconfig.json'].toSorted(),
  );
});
