/** The search form: its fields as typed, and the search they ask for. */
import type { Search } from '../submission/support-queries.ts';
import { fields, when } from '../view/search-fields.ts';

/** By the field's name; a field that was left empty counts as absent. */
export type Asked = Readonly<Record<string, string | undefined>>;

const NONE = 'Fill in at least one field.';
/** They name a person, so a page does not repeat them. */
const PERSONAL = ['id', 'email', 'ein', 'name'];

/** Either a search, or a sentence for each field that is wrong. */
export function readForm(
  asked: Asked,
  now: Date,
): { readonly search?: Search; readonly faults: Readonly<Record<string, string>> } {
  const rules = { ...fields, since: when(now), until: when(now) };
  const faults: Record<string, string> = {};
  const search: Record<string, unknown> = {};
  for (const [name, rule] of Object.entries(rules)) {
    const value = asked[name]?.trim() ?? '';
    if (value === '') continue;
    const parsed = rule.safeParse(value);
    if (parsed.success) search[name] = parsed.data;
    else faults[name] = parsed.error.issues[0]?.message ?? 'It cannot be used.';
  }
  if (Object.keys(faults).length > 0) return { faults };
  return Object.keys(search).length === 0 ? { faults: { id: NONE } } : { search, faults };
}

/** What the page may repeat, and the names of the fields that it hides. */
export function shownAgain(asked: Asked): { readonly asked: Asked; readonly hidden: string[] } {
  const given = Object.entries(asked).filter(([, value]) => (value?.trim() ?? '') !== '');
  return {
    asked: Object.fromEntries(given.filter(([name]) => !PERSONAL.includes(name))),
    hidden: given.map(([name]) => name).filter((name) => PERSONAL.includes(name)),
  };
}
