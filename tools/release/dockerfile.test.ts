/**
 * Docker and `make release` make the same image: one script makes the files, and the Dockerfile
 * says how they are run.
 */
import { expect, test } from '@jest/globals';
import { read } from '../../test/support/pages.ts';
import { imageConfig } from './dockerfile.ts';

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
