/** `partner hold|release` and `partner disable|enable`: two flags of a partner, each set and cleared. */
import { reactivation, secretsSwitchingOff } from '../view/partners.ts';
import type { Command, Desk } from './command.ts';
import { partner } from './options.ts';
import { commandOf } from './order.ts';

interface Word extends Pick<Command, 'about' | 'details' | 'examples'> {
  readonly name: 'hold' | 'release' | 'disable' | 'enable';
  /** In JSON. */
  readonly result: string;
  /** Continues a sentence that begins with the partner. */
  readonly done: string;
  readonly already: string;
  act(desk: Desk, partnerId: string): Promise<boolean>;
}

const words: readonly Word[] = [
  {
    name: 'hold',
    about: 'put a partner on hold: nothing it sent is worked on',
    details:
      'Takes effect within five seconds: no account is made and no e-mail begins; an e-mail whose content is on its way to the relay ends. Requests are still accepted and recorded, and keep their place. "partner release" lets the work go on; "close --partner PARTNER --state STATE" ends what shall not be done. "partner disable" turns new requests away.',
    examples: ['partner hold acme --why "key leaked"'],
    result: 'held',
    done: ' on hold: a processor that works on a request of it stops within five seconds; new requests are accepted and wait',
    already: 'is on hold already',
    act: (desk, partnerId) => desk.holds.set(partnerId, desk.trail.by),
  },
  {
    name: 'release',
    about: 'let the work of a partner on hold go on',
    details: 'Everything that waits is worked on, oldest first.',
    examples: ['partner release acme --why "all theirs"'],
    result: 'released',
    done: ' released: processors go on with its work within half a minute',
    already: 'is not on hold',
    act: (desk, partnerId) => desk.holds.clear(partnerId, desk.trail.by),
  },
  {
    name: 'disable',
    about: 'answer all keys of a partner 403, whatever its Secrets say',
    details:
      'Every ingest that reaches MongoDB does so within about a second, also for keys that come later. Neither Kubernetes nor the controller is needed. What was accepted is still worked on; "partner hold" stops that. "partner enable" undoes it.',
    examples: ['partner disable acme --as jane --why "contract ended"'],
    result: 'disabled',
    done: 'is disabled: each ingest that reaches MongoDB answers its keys 403 within a second; what it sent before is still worked on',
    already: 'is disabled already',
    act: (desk, partnerId) => desk.keys.disabled.set(partnerId, desk.trail.by),
  },
  {
    name: 'enable',
    about: 'accept the keys of a disabled partner again',
    details:
      'A key whose Secret, or another Secret of the partner, says "inactive" stays inactive; this command then prints what to type.',
    examples: ['partner enable acme --as jane'],
    result: 'enabled',
    done: 'is enabled: each ingest that reaches MongoDB knows it within a second',
    already: 'is not disabled',
    act: (desk, partnerId) => desk.keys.disabled.clear(partnerId, desk.trail.by),
  },
];

/** `partner hold`, `release`, `disable` and `enable`. */
export const partnerFlags: readonly Command[] = words.map((word) =>
  commandOf<Partner>({
    ...word,
    name: `partner ${word.name}`,
    positionals: [partner],
    atOnce: true,
    select: async ({ desk, positionals, clock, out }) => {
      const [partnerId = ''] = positionals;
      const keys = await desk.keys.list(partnerId);
      // A mistyped name would be flagged in vain.
      if (['hold', 'disable'].includes(word.name) && keys.length === 0)
        out.note(`no key of ${partnerId} is known: is that its name?`);
      const isEnabled = word.name === 'enable';
      return { partnerId, inactiveBy: isEnabled ? secretsSwitchingOff(keys, clock.now()) : [] };
    },
    plan: () => ({ to: word.result }),
    act: async ([one], { desk }) => ((await word.act(desk, one!.partnerId)) ? 1 : 0),
    words: ({ partnerId, inactiveBy }) => ({
      subject: partnerId,
      about: { partnerId },
      done: `${partnerId} ${word.done}`,
      unchanged: word.already,
      notes: inactiveBy.map(reactivation),
      json: {
        done: {
          partner: partnerId,
          result: word.result,
          ...(['disable', 'enable'].includes(word.name) ? { inactive_by: inactiveBy } : {}),
        },
      },
    }),
  }),
);

interface Partner {
  readonly partnerId: string;
  /** Secrets that make keys inactive as well. */
  readonly inactiveBy: readonly string[];
}
