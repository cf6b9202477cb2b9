/** A small DNS server (RFC 1035) with SRV and TXT records. */
import { createSocket } from 'node:dgram';

const TXT = 16;
const SRV = 33;
const INTERNET = 1;
const HEADER_BYTES = 12;
/** Flags of a response: answered, or unknown name. */
const RESPONSE = 0x8180;
const NO_SUCH_NAME = 3;
/** A pointer to the name in the question. */
const SAME_NAME = 0xc000 + HEADER_BYTES;

interface DnsRecords {
  readonly srv: Readonly<
    Record<string, readonly { readonly name: string; readonly port: number }[]>
  >;
  readonly txt: Readonly<Record<string, string>>;
}

export async function startDnsServer(records: DnsRecords) {
  const socket = createSocket('udp4');
  socket.on('message', (query, client) =>
    socket.send(answer(query, records), client.port, client.address),
  );
  await new Promise<void>((resolve) => void socket.bind(0, '127.0.0.1', resolve));
  return {
    address: `127.0.0.1:${socket.address().port}`,
    close: () => new Promise<void>((resolve) => void socket.close(resolve)),
  };
}

function answer(query: Buffer, records: DnsRecords): Buffer {
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (let length = query.readUInt8(at); length > 0; length = query.readUInt8(at)) {
    labels.push(query.toString('ascii', at + 1, at + 1 + length));
    at += 1 + length;
  }
  const name = labels.join('.').toLowerCase();
  const type = query.readUInt16BE(at + 1);
  const found = dataOf(name, type, records);
  const known = name in records.srv || name in records.txt;
  return Buffer.concat([
    query.subarray(0, 2),
    numbers(RESPONSE + (known ? 0 : NO_SUCH_NAME), 1, found.length, 0, 0),
    query.subarray(HEADER_BYTES, at + 5),
    ...found.flatMap((data) => [numbers(SAME_NAME, type, INTERNET, 0, 0, data.length), data]),
  ]);
}

function dataOf(name: string, type: number, { srv, txt }: DnsRecords): Buffer[] {
  if (type === TXT && txt[name] !== undefined) return [text(txt[name])];
  if (type !== SRV) return [];
  return (srv[name] ?? []).map((target) =>
    Buffer.concat([
      numbers(0, 0, target.port),
      ...target.name.split('.').map(text),
      Buffer.alloc(1),
    ]),
  );
}

function text(value: string): Buffer {
  return Buffer.concat([Buffer.from([value.length]), Buffer.from(value, 'ascii')]);
}

function numbers(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 2);
  for (const [index, value] of values.entries()) bytes.writeUInt16BE(value, index * 2);
  return bytes;
}
