/** For partners: `hold`, `release`, `disable` and `enable` them; `keys new` and `keys revoke`. */
import { hashApiKey, keyIdOf, newApiKey } from '../partner/api-key.ts';
import { partnerSecretManifest } from '../partner/key-manifest.ts';
import { secretName } from '../partner/key-secret.ts';
import type { PartnerKey } from '../partner/key-store.ts';
import { MODE_ANNOTATION } from '../partner/key-terms.ts';
import { defined } from '../platform/defined.ts';
import { printable } from '../platform/terminal.ts';
import { reactivation, secretsSwitchingOff } from '../view/partners.ts';
import { CommandError, EXIT, type Command, type Desk } from './command.ts';
import { keyId, partner as partnerName } from './options.ts';
import { oneCommandOf } from './order.ts';

/** Sets or clears a flag of a partner. */
interface Flag {
  /** In JSON. */
  readonly result: string;
  /** Continues a sentence that begins with the partner. */
  readonly done: string;
  readonly already: string;
  readonly act: (desk: Desk, partnerId: string) => Promise<boolean>;
}

interface Partner {
  readonly partnerId: string;
  /** Secrets that make keys inactive as well. */
  readonly inactiveBy: readonly string[];
}

const flagCommand = (name: string, { result, done, already, act }: Flag): Command =>
  oneCommandOf<Partner>({
    name: `partner ${name}`,
    positionals: [partnerName],
    atOnce: true,
    select: async ({ desk, positionals, clock, out }) => {
      const [partnerId = ''] = positionals;
      const keys = await desk.keys.list(partnerId);
      // A mistyped name would be flagged in vain.
      if (['hold', 'disable'].includes(name) && keys.length === 0)
        out.note(`no key of ${partnerId} is known: is that its name?`);
      const inactiveBy = name === 'enable' ? secretsSwitchingOff(keys, clock.now()) : [];
      return { partnerId, inactiveBy };
    },
    plan: () => ({ to: result }),
    act: ({ partnerId, inactiveBy }, { desk, out }) => {
      for (const secret of inactiveBy) out.note(reactivation(secret));
      return act(desk, partnerId);
    },
    words: ({ partnerId, inactiveBy }) => ({
      subject: partnerId,
      about: { partnerId },
      done: `${partnerId} ${done}`,
      unchanged: { whyNot: already },
      json: {
        done: {
          partner: partnerId,
          result,
          ...(['disable', 'enable'].includes(name) ? { inactive_by: inactiveBy } : {}),
        },
      },
    }),
  });

export const partnerFlags: readonly Command[] = [
  flagCommand('hold', {
    result: 'held',
    done: ' on hold: a processor that works on a request of it stops within five seconds; new requests are accepted and wait',
    already: 'is on hold already',
    act: ({ holds, trail }, partnerId) => holds.set(partnerId, trail.by),
  }),
  flagCommand('release', {
    result: 'released',
    done: ' released: processors go on with its work within half a minute',
    already: 'is not on hold',
    act: ({ holds, trail }, partnerId) => holds.clear(partnerId, trail.by),
  }),
  flagCommand('disable', {
    result: 'disabled',
    done: 'is disabled: each ingest that reaches MongoDB answers its keys 403 within a second; what it sent before is still worked on',
    already: 'is disabled already',
    act: ({ keys, trail }, partnerId) => keys.disabled.set(partnerId, trail.by),
  }),
  flagCommand('enable', {
    result: 'enabled',
    done: 'is enabled: each ingest that reaches MongoDB knows it within a second',
    already: 'is not disabled',
    act: ({ keys, trail }, partnerId) => keys.disabled.clear(partnerId, trail.by),
  }),
];

const REVOKED = { whyNot: 'is revoked already' } as const;

export const keysRevoke = oneCommandOf<PartnerKey>({
  name: 'keys revoke',
  positionals: [keyId],
  final: true,
  select: async ({ desk, positionals }) => {
    const [id = ''] = positionals;
    const all = await desk.keys.list();
    const [key, other] = all.filter(({ hash }) => hash.startsWith(id));
    if (key === undefined) throw new CommandError(`no key begins with ${id}: see "keys list"`);
    if (other !== undefined)
      throw new CommandError(`several keys begin with ${id}: give more of the SHA-256`);
    return key;
  },
  plan: ({ revokedAt }) => (revokedAt === undefined ? { to: 'revoked' } : REVOKED),
  act: ({ hash }, { desk }) => desk.keys.revoke(hash),
  words: ({ hash, partnerId, source }) => {
    const shown = { key: keyIdOf(hash), partner: partnerId, secret: secretName(source) };
    const subject = printable(`key ${shown.key} of ${partnerId}, from ${shown.secret},`);
    return {
      subject,
      about: { partnerId, keyId: shown.key },
      would: `${subject} would be revoked`,
      done: `${subject} is revoked: each ingest that reaches MongoDB answers it 401 within a second; remove it from its Secret`,
      unchanged: REVOKED,
      json: { dry: shown, done: { ...shown, result: 'revoked' } },
    };
  },
});

/** Makes an API key and the manifest of its Secret; needs no store. */
export const keysNew: Command = {
  name: 'keys new',
  positionals: [partnerName],
  options: ['namespace', 'test'],
  run: ({ positionals, values, out, keysNamespace }) => {
    const [partner = ''] = positionals;
    const { json, test, namespace = keysNamespace } = values;
    const slug = partner.toLowerCase().replace(/[^a-z0-9]+/g, '-');
    const key = newApiKey(defined({ test }));
    // Each key has its own Secret, so that the old key stays active.
    const name = `partner-${slug}-${keyIdOf(hashApiKey(key))}`;
    const annotations = defined({ [MODE_ANNOTATION]: test && 'test' });
    const secret = { name, namespace, partner, keys: [key], annotations };
    const { yaml, object } = partnerSecretManifest(secret);
    if (json) out.json({ key, manifest: object });
    else {
      out.note(`the key, shown only now: ${key}`);
      out.line(yaml.trimEnd());
    }
    return Promise.resolve(EXIT.ok);
  },
};
