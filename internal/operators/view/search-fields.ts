/** What requests are searched by, as people type it in a command or a form. */
import { z } from 'zod';
import { normalizeEin, normalizeEmail } from '../../application/fields.ts';
import { later } from '../../platform/process/clock.ts';
import { namePattern, plainText } from '../../submission/name-pattern.ts';
import { states } from '../../submission/states.ts';

/** Of what is searched by: no stored value is longer. */
export const TEXT_MAX = 1_000;
/** Of a reason in the trail. */
export const WHY_MAX = 500;

/** `--why --yes` would otherwise use the second option as a value. */
export const text = (max: number) =>
  z
    .string()
    .min(1, 'It needs a value.')
    .max(max, `It has more than ${max} characters.`)
    .refine((value) => !value.startsWith('--'), 'It needs a value.');

const WHEN = 'It must be like 30m, 24h, 7d or 2026-11-21T09:00Z.';
const UNIT_MS: Readonly<Record<string, number>> = { s: 1e3, m: 6e4, h: 3.6e6, d: 8.64e7 };
const point = z.union([
  z.iso.date(),
  z.iso.datetime({ local: true, offset: true }),
  // Without seconds.
  z.iso.datetime({ offset: true, precision: -1 }),
]);

/** A duration before `now`, or a time as commands print it: UTC unless a zone follows. */
function timeOf(value: string, now: Date): Date | undefined {
  const [, amount, unit = ''] = /^(\d{1,6})([smhd])$/.exec(value) ?? [];
  if (amount !== undefined) return later(now, -Number(amount) * (UNIT_MS[unit] ?? 0));
  const iso = value.replace(/ ?UTC$/, 'Z').replace(' ', 'T');
  if (!point.safeParse(iso).success) return undefined;
  // A time without a zone would be read as local.
  return new Date(/T(?!.*(?:Z|[+-]\d\d:\d\d)$)/.test(iso) ? `${iso}Z` : iso);
}

/** Relative times count from `now`. */
export const when = (now: Date) =>
  z.string().transform((value, context) => {
    const time = timeOf(value, now);
    if (time !== undefined) return time;
    context.addIssue({ code: 'custom', message: WHEN });
    return z.NEVER;
  });

/** People paste what other programs show: other widths, dashes and unseen characters. */
const pasted = text(TEXT_MAX)
  .transform(plainText)
  .refine((value) => value !== '', 'It needs a value.');

export const fields = {
  email: pasted.transform(normalizeEmail),
  ein: pasted
    .transform((value) => normalizeEin(value.replace(/[\p{Pd}\u2212]/gu, '-')))
    .refine((value) => /^[0-9]{9}$/.test(value), 'It must be nine digits.'),
  // Its pattern knows what is alike, and needs the name as it was pasted.
  name: text(TEXT_MAX)
    .refine((value) => plainText(value) !== '', 'It needs a value.')
    .refine(
      (value) => namePattern(value, { whole: true }) !== undefined,
      'It is too long to be searched.',
    ),
  partner: text(TEXT_MAX),
  state: z.enum(states, `It must be one of ${states.join(', ')}.`),
  reason: text(TEXT_MAX),
} as const;

const NAMES_NOBODY = 'An address, an EIN or a long number may not stand here: use the search.';
const plain = (schema: z.ZodString) =>
  schema.refine((value) => !namesSomebody(value), NAMES_NOBODY);

/** What may be personal must not stand in the address of a page. */
const namesSomebody = (value: string): boolean => /@|\d{2}[\s\p{Pd}]?\d{7}/u.test(value);

/** What the address of a list holds. */
export const listFields = {
  partner: plain(text(TEXT_MAX)),
  state: fields.state,
  reason: plain(text(TEXT_MAX)),
  field: plain(text(TEXT_MAX)),
  code: z
    .string()
    .regex(/^[1-5]\d\d$/, 'It must be an HTTP status, such as 400.')
    .transform(Number),
  key: z.string().regex(/^[0-9a-f]{12}$/, 'It must be the id of a key.'),
  mode: z.enum(['live', 'test'], 'It must be live or test.'),
} as const;

/** What was typed into a form, without empty fields, or a sentence for each that is wrong. */
export function typed<Fields extends z.ZodRawShape>(form: z.ZodObject<Fields>, asked: object) {
  const filled = Object.entries(asked).filter(([, value]) => value !== '');
  const { data, error } = form.safeParse(Object.fromEntries(filled));
  const faults: Readonly<Record<string, string>> = Object.fromEntries(
    // What is no field has no path.
    (error?.issues ?? []).map(({ path, message }) => [path.join() || 'partner', message]),
  );
  return { data, faults };
}
