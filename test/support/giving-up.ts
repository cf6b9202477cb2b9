/**
 * A store that gives up on a read for which it would have to sort too many documents, as FerretDB
 * does with millions.
 */
import { MongoServerError, type Collection, type Document } from 'mongodb';

/**
 * `collection`, where a `find` of more than `most` matching documents ends as at its `maxTimeMS`.
 */
export function givingUp<T extends Document>(
  collection: Collection<T>,
  most: number,
): Collection<T> {
  const find = (...args: Parameters<Collection<T>['find']>) => {
    const cursor = collection.find(...args);
    const read = cursor.toArray.bind(cursor);
    cursor.toArray = async () => {
      if ((await collection.countDocuments(args[0])) <= most) return read();
      throw new MongoServerError({ message: 'operation exceeded time limit', code: 50 });
    };
    return cursor;
  };
  return new Proxy(collection, {
    get: (target, name) => {
      if (name === 'find') return find;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}
