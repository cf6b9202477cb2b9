/** `make bench OF=traces`: what tracing costs ingest: off, with one trace in a hundred, and with all. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { compareVariants, type Bench } from './alternating.ts';

/** A collector that takes spans and throws them away; gives its address. */
async function startCollector(bench: Bench): Promise<string> {
  const server = createServer((request, response) => request.resume().once('end', () => response.end()));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  bench.closeLater(() => new Promise((resolve) => server.close(resolve)));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

await compareVariants('traces', async (bench) => {
  const OTEL_EXPORTER_OTLP_ENDPOINT = await startCollector(bench);
  const sampled = { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.01' };
  await bench.start('controller');
  return {
    off: await bench.start('ingest'),
    '1 %': await bench.start('ingest', { OTEL_EXPORTER_OTLP_ENDPOINT, ...sampled }),
    all: await bench.start('ingest', { OTEL_EXPORTER_OTLP_ENDPOINT }),
  };
});
