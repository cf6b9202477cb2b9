/** The search form: its fields as typed, and the search they ask for. */
import { z } from 'zod';
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
  const form = z.object({ ...fields, since: when(now), until: when(now) }).partial();
  const { success, data, error } = form.safeParse(Object.fromEntries(given(asked)));
  if (!success)
    return {
      faults: Object.fromEntries(error.issues.map(({ path, message }) => [path.join(), message])),
    };
  return Object.keys(data).length === 0
    ? { faults: { id: NONE } }
    : { search: data as Search, faults: {} };
}

/** The fields that were filled in. */
function given(asked: Asked): [string, string][] {
  return Object.entries(asked).flatMap(([name, value = '']): [string, string][] =>
    value.trim() === '' ? [] : [[name, value.trim()]],
  );
}

/** What the page may repeat, and the names of the fields that it hides. */
export function shownAgain(asked: Asked): { readonly asked: Asked; readonly hidden: string[] } {
  const all = given(asked);
  return {
    asked: Object.fromEntries(all.filter(([name]) => !PERSONAL.includes(name))),
    hidden: all.map(([name]) => name).filter((name) => PERSONAL.includes(name)),
  };
}
