/** Lists of requests that a person keeps under a name, in a cookie of the browser. */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Clock } from '../../platform/process/clock.ts';
import { addressOf, queryOf, searchOf } from './lists.ts';
import { filledIn } from './routes.ts';

const NAME_MAX = 40;
/** Browsers drop a cookie of more than 4,096 bytes; its value is encoded. */
const COOKIE_CHARS = 3_500;
/** The most that browsers allow. */
const KEPT_SECONDS = 400 * 86_400;

const Views = z.array(z.tuple([z.string(), z.string()]));
type Views = z.output<typeof Views>;

declare module 'fastify' {
  interface FastifyRequest {
    savedViews(): Views;
  }
}

export function addSavedViews(
  app: FastifyInstance,
  {
    cookie,
    secure,
    clock,
  }: { readonly cookie: string; readonly secure: boolean; readonly clock: Clock },
): void {
  app.decorateRequest('savedViews', function savedViews(this: FastifyRequest): Views {
    try {
      return Views.parse(JSON.parse(this.cookies[cookie] ?? '[]'));
    } catch {
      // Of another version, or not ours.
      return [];
    }
  });
  app.post('/requests/views', (request, reply) => {
    const { name = '', query = '', remove } = filledIn(request.body as object);
    const asked = queryOf(query);
    const href = addressOf('/requests', asked);
    const back = { href, name: 'the list' };
    if (searchOf(asked, clock.now()).search === undefined)
      return reply.say(400, 'It is no list that can be kept.');
    const others = request.savedViews().filter(([other]) => other !== (remove ?? name));
    if (remove === undefined && (name === '' || name.length > NAME_MAX))
      return reply.say(400, `A name has 1 to ${NAME_MAX} characters.`, back);
    const views = remove === undefined ? [...others, [name, query] as const] : others;
    const value = JSON.stringify(views);
    if (encodeURIComponent(value).length > COOKIE_CHARS)
      return reply.say(409, 'There is no room for one more: remove another one.', back);
    const of = { path: '/', httpOnly: true, sameSite: 'lax', secure } as const;
    void reply.setCookie(cookie, value, { ...of, maxAge: KEPT_SECONDS });
    return reply.redirect(href, 303);
  });
}
