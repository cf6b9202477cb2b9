/** The rights of each process at MongoDB, as docs/stores.md has them, and as commands need them. */
import type { Document } from 'mongodb';
import { read } from './pages.ts';

const FREE = ['hello', 'ismaster', 'ping', 'endSessions', 'killCursors'];
const READS = ['find', 'aggregate', 'count', 'distinct'];

/** Returns rights such as `requests find`. */
export function rightsOf(command: Document): string[] {
  const [name = '', collection] = Object.entries(command)[0] ?? [];
  const has = (list: string): boolean =>
    [command, ...((command[list] as Document[] | undefined) ?? [])].some(
      (item) => item['upsert'] === true,
    );
  if (FREE.includes(name)) return [];
  if (READS.includes(name)) return [`${collection} find`];
  if (name === 'getMore') return [`${command['collection']} find`];
  if (name === 'insert') return [`${collection} insert`];
  if (name === 'delete') return [`${collection} remove`];
  if (name === 'createIndexes') return [`${collection} indexes`];
  const inserts = has('updates') ? [`${collection} insert`] : [];
  if (name === 'update') return [`${collection} update`, ...inserts];
  if (name === 'findAndModify') return [`${collection} find`, `${collection} update`, ...inserts];
  return [`unknown command ${name}`];
}

export function documentedRights(process: string): string[] {
  const [, entry = ''] =
    new RegExp(`^- ${process}: ([^]*?)(?=\\n- )`, 'm').exec(read('docs/stores.md')) ?? [];
  const rights = entry.split(';').flatMap((part) => {
    const [verbs = '', collections = ''] = part.split(/\s+on\s+/);
    return [...collections.matchAll(/`(\w+)`/g)].flatMap(([, collection]) =>
      (verbs.match(/\w+/g) ?? []).map((verb) => `${collection} ${verb}`),
    );
  });
  return rights.toSorted();
}
