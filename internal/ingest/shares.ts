/** What all clients of this process share, by partner and address. */
import type { Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { FairShares } from '../platform/fair-shares.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { mayBeClosed } from './connection.ts';
import { SHARED } from './limits.ts';
import type { IncomingBody } from './read-body.ts';

export type Shares = ReturnType<typeof newShares>;

export function newShares({ brokenHttp }: Pick<IngestMetrics, 'brokenHttp'>) {
  const close = (socket: Socket): void => {
    brokenHttp.inc({ kind: 'too_many_connections' });
    socket.destroy();
  };
  return {
    incomingBytes: new FairShares<IncomingBody>(SHARED.incomingBytes, (body) => body.giveWay()),
    connections: new FairShares<Socket>(SHARED.connections, close, mayBeClosed),
  };
}

/** Until its key is known, a request is nobody's. */
export function belongTo(partnerId: string, request: FastifyRequest, shares: Shares): void {
  request.incomingBody.belongTo(partnerId);
  const { socket } = request.raw;
  const [owner, address] = shares.connections.ownerOf(socket) ?? [partnerId, ''];
  if (owner !== partnerId) shares.connections.hold(socket, [partnerId, address]);
}
