/** The least that Fastify does: parses the body and answers 202; nothing is stored or checked. */
import { fastify } from 'fastify';

const app = fastify({ logger: false });
app.post('/api/v1/capital/ingest', (_request, reply) => {
  reply
    .code(202)
    .send({ message: 'Request accepted for processing', data: { request_id: 'req_none' } });
});
console.log(
  JSON.stringify({ msg: 'serving', url: await app.listen({ host: '127.0.0.1', port: 0 }) }),
);
