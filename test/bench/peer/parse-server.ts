/** Parse Server as an ingester: each request creates an object of the class `requests`, written to a majority before the 201. */
/* oxlint-disable node/no-process-env -- a program of its own */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;
interface ParseServer {
  readonly app: Handler;
  start(): Promise<unknown>;
}

const env = (name: string): string => process.env[name] ?? '';
const { ParseServer: Parse } = createRequire(env('PARSE_SERVER'))('parse-server') as {
  readonly ParseServer: new (options: object) => ParseServer;
};
const databaseURI = new URL(env('MONGODB_URI'));
databaseURI.pathname = env('MONGODB_DATABASE');
databaseURI.searchParams.set('w', 'majority');
databaseURI.searchParams.set('journal', 'true');
const server = new Parse({
  databaseURI: databaseURI.href,
  appId: 'bench',
  masterKey: 'bench',
  serverURL: 'http://127.0.0.1/',
  // Collations, which a stand-in for MongoDB need not have.
  databaseOptions: { createIndexUserUsernameCaseInsensitive: false, createIndexUserEmailCaseInsensitive: false },
  allowClientClassCreation: true,
  silent: true,
  directAccess: true,
});
await server.start();
const http = createServer((request, response) => {
  request.url = '/classes/requests';
  request.headers['x-parse-application-id'] = 'bench';
  server.app(request, response);
});
http.listen(0, '127.0.0.1', () => {
  const { port } = http.address() as { port: number };
  console.log(JSON.stringify({ msg: 'serving', url: `http://127.0.0.1:${port}` }));
});
process.once('SIGTERM', () => process.exit());
