/** Signed-in people without a browser, and the forms that they open and send. */
import { sign } from '@fastify/cookie';
import { cookieName } from '../../internal/operators/console/sign-in.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { send, type Answer } from './http.ts';
import { SECRET } from './oidc.ts';
import type { InProcess } from './world.ts';

export interface Seat {
  readonly cookie: string;
  readonly name: string;
}

/** The form of a page, as a browser would send it. */
export interface Shown {
  readonly status: number;
  readonly text: string;
  readonly fields: Readonly<Record<string, string>>;
  readonly cookie: string;
}

const signed = (name: string, content: string): string =>
  `${name}=${encodeURIComponent(sign(content, SECRET))}`;

export function seatsOf(desk: InProcess) {
  return {
    seatOf: (role: string, name = role): Seat => {
      const session = cookieName('session', SECRET);
      const sub = `sub-${name}`;
      const person = { id: newId('ses', new Date()), name, sub, nameFrom: 'oidc', role };
      const text = JSON.stringify({ ...person, until: Date.now() + 600_000 });
      return { name, cookie: signed(session, `${session} ${text}`) };
    },
    open: async (path: string, seat: Seat, at = desk): Promise<Shown> => {
      const { status, text, headers } = await send(at.url, {
        method: 'GET',
        path,
        headers: { cookie: seat.cookie },
      });
      const [form = ''] = headers['set-cookie']?.match(/form-[^;]*/) ?? [];
      const main = text.slice(text.indexOf('<main'));
      const inputs = [...main.matchAll(/<input type="hidden" name="(\w+)" value="([^"]*)"/g)];
      const [, token = ''] = /name="_csrf" value="([^"]*)"/.exec(text) ?? [];
      const fields = Object.fromEntries(inputs.map(([, name = '', value = '']) => [name, value]));
      return {
        status,
        text,
        fields: { _csrf: token, ...fields },
        cookie: `${seat.cookie}; ${form}`,
      };
    },
    post: (
      path: string,
      { fields, cookie }: Pick<Shown, 'fields' | 'cookie'>,
      more: Readonly<Record<string, string>> = {},
      at = desk,
      headers: Readonly<Record<string, string>> = {},
    ): Promise<Answer> => {
      const type = { 'content-type': 'application/x-www-form-urlencoded' };
      const body = String(new URLSearchParams({ ...fields, ...more }));
      return send(at.url, { path, body, headers: { ...type, cookie, ...headers } });
    },
  };
}
