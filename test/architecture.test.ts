/** Checks imports between rooms and the habits that a program can check. */
import { expect, test } from '@jest/globals';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { parse } from 'yaml';
import { ROOT } from '../tools/root.ts';
import { SHARED } from '../internal/ingest/bounds.ts';
import { generatedDocs } from '../tools/generate-docs.ts';

const { floors: FLOORS, doors: DOORS } = parse(
  readFileSync(join(ROOT, 'test/architecture.yaml'), 'utf8'),
) as { readonly floors: Readonly<Record<string, number>>; readonly doors: readonly string[] };
const MAIN_MAX_LINES = 40;
const FILE_MAX_LINES = 500;
/** The package in an import, or in the path of a file that is served. */
const PACKAGE =
  /(?:^import |^\} from |^import .* from |import\(|resolve\()['`]((?:@[\w-]+\/)?[a-z][\w.-]*)(?:\/[^'`]*)?['`]/gm;

interface SourceFile {
  readonly path: string;
  readonly text: string;
  readonly room: string;
  readonly imports: readonly string[];
  readonly packages: readonly string[];
}

function inParentheses(text: string, from: number): string {
  let open = 1;
  let at = from;
  for (; open > 0; at += 1) open += text[at] === '(' ? 1 : text[at] === ')' ? -1 : 0;
  return text.slice(from, at);
}

/** A room may have folders. */
const roomOf = (path: string): string =>
  path
    .split('/')
    .slice(0, path.startsWith('internal/operators/') ? 3 : 2)
    .join('/');

function sources(folder: string): SourceFile[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts') && !name.endsWith('.d.ts'))
    .map((name) => {
      const path = join(folder, name);
      const text = readFileSync(join(ROOT, path), 'utf8');
      const specifiers = [...text.matchAll(/(?:from\s+|^import\s+|import\()'(\.[^']+)'/gm)].map(
        (match) => match[1] ?? '',
      );
      return {
        path,
        text,
        room: roomOf(path),
        imports: specifiers.map((specifier) =>
          relative(ROOT, resolve(ROOT, dirname(path), specifier)),
        ),
        packages: [...text.matchAll(PACKAGE)].map(([, found = '']) => found),
      };
    });
}

const files = [...sources('internal'), ...sources('cmd')];
const faultsOf = (check: (file: SourceFile) => (string | undefined)[]): string[] =>
  files.flatMap(check).filter((fault) => fault !== undefined);

test('every room belongs to a floor', () => {
  expect(files.length).toBeGreaterThan(40);
  expect(
    [...new Set(files.map((file) => file.room))].filter((room) => FLOORS[room] === undefined),
  ).toEqual([]);
});

test('imports point down, and the rooms of processes do not import each other', () => {
  const faults = faultsOf((file) =>
    file.imports.map((imported) => {
      const [from, to] = [FLOORS[file.room] ?? 0, FLOORS[roomOf(imported)] ?? 0];
      const sameRoom = roomOf(imported) === file.room;
      const neighbours = from === 2 && to === 2;
      return sameRoom || neighbours || to < from ? undefined : `${file.path} imports ${imported}`;
    }),
  );
  expect(faults).toEqual([]);
});

test.each([
  ['rooms', roomOf],
  ['folders', dirname],
] as const)('no %s import each other in a circle', (_, placeOf) => {
  const places = Map.groupBy(files, ({ path }) => placeOf(path));
  const neighbours = new Map(
    [...places].map(([place, inPlace]) => {
      const others = inPlace.flatMap(({ imports }) => imports.map((to) => placeOf(to)));
      return [place, new Set(others.filter((other) => other !== place && places.has(other)))];
    }),
  );
  const reachable = (from: string): ReadonlySet<string> => {
    const reached = new Set(neighbours.get(from));
    for (const place of reached) for (const next of neighbours.get(place) ?? []) reached.add(next);
    return reached;
  };
  expect([...places.keys()].filter((place) => reachable(place).has(place))).toEqual([]);
});

const isOperators = (path: string): boolean =>
  /^(internal\/operators|cmd\/(console|cli))\//.test(path);

test('the service imports nothing of the operators, who import only its doors', () => {
  const arrows = files.flatMap(({ path, imports }) =>
    imports.filter((to) => isOperators(to) !== isOperators(path)).map((to) => ({ path, to })),
  );
  expect(arrows.filter(({ path }) => !isOperators(path))).toEqual([]);
  const doors = DOORS.map((door) => `internal/${door}`);
  expect([...new Set(arrows.map(({ to }) => to))].toSorted()).toEqual(doors);
});

test('each house has just the packages that it imports, and both the same versions', () => {
  const dependenciesIn = (folder: string): Readonly<Record<string, string>> => {
    const text = readFileSync(join(ROOT, folder, 'package.json'), 'utf8');
    return (JSON.parse(text) as { dependencies: Record<string, string> }).dependencies;
  };
  const imported = (ofOperators: boolean): string[] => {
    const inHouse = files.filter(({ path }) => isOperators(path) === ofOperators);
    return [...new Set(inHouse.flatMap(({ packages }) => packages))].toSorted();
  };
  const [service, operators] = [dependenciesIn('.'), dependenciesIn('internal/operators')];
  expect(Object.keys(service).toSorted()).toEqual(imported(false));
  expect(Object.keys(operators).toSorted()).toEqual(imported(true));
  expect({ ...service, ...operators }).toEqual({ ...operators, ...service });
});

/** All files that `path` loads, at once or later. */
function loadedBy(path: string): ReadonlySet<string> {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const loaded = new Set([path]);
  for (const one of loaded)
    for (const imported of byPath.get(one)?.imports ?? []) loaded.add(imported);
  return loaded;
}

test('what no process of the service loads says that it is for operators', () => {
  const loaded = new Set(
    ['ingest', 'processor', 'controller'].flatMap((name) => [...loadedBy(`cmd/${name}/main.ts`)]),
  );
  const others = files.filter(({ path }) => !loaded.has(path) && !isOperators(path));
  const heads = others.map(({ path, text }) => `${path}: ${text.slice(0, text.indexOf('*/'))}`);
  expect(heads.filter((head) => !/operators/i.test(head))).toEqual([]);
});

test('only the controller loads the Kubernetes library', () => {
  const users = files
    .filter((file) => file.text.includes("'@kubernetes/client-node'"))
    .map((file) => file.path);
  expect(users).not.toEqual([]);
  const allowed =
    /^(cmd\/controller\/|internal\/controller\/|internal\/platform\/process\/kubernetes\.ts$)/;
  expect(users.filter((path) => !allowed.test(path))).toEqual([]);
  expect(users.filter((path) => loadedBy('cmd/controller/main.ts').has(path))).toEqual(users);
  const others = new Set(
    files
      .filter((file) => /^cmd\/(?!controller\/).*\/main\.ts$/.test(file.path))
      .map(({ path }) => path),
  );
  expect(others.size).toBeGreaterThan(1);
  for (const main of others) expect(users.filter((path) => loadedBy(main).has(path))).toEqual([]);
});

test('a controller that reads a folder does not load the Kubernetes library', () => {
  const wire = files.find((file) => file.path === 'cmd/controller/wire.ts');
  const atOnce = [...(wire?.text.matchAll(/^import (?!type).*from '(\.[^']+)'/gm) ?? [])].map(
    (match) => match[1] ?? '',
  );
  const loaded = atOnce.flatMap((specifier) => [
    ...loadedBy(relative(ROOT, resolve(ROOT, 'cmd/controller', specifier))),
  ]);
  expect(loaded.length).toBeGreaterThan(10);
  expect(loaded.filter((path) => path.includes('kubernetes'))).toEqual([]);
});

/** Finds `db.collection<Shape>(NAME)`. */
const opened = files.flatMap(({ path, room, text }) =>
  [...text.matchAll(/\.collection<\w+>\((\w+)\)/g)].map(([, name = '']) => ({ path, room, name })),
);
const importedNames = ({ text }: SourceFile): string[] =>
  [...text.matchAll(/^import (?:type )?\{([^}]*)\}/gm)].flatMap(
    ([, names = '']) => names.match(/\w+/g) ?? [],
  );

test('every collection is opened in one place, by a room of floor 2', () => {
  const stored = [
    'ACCOUNTS',
    'INSTALLATION',
    'KEYS_REVOKED',
    'KEY_USES',
    'OPERATOR_AUDIT',
    'PARTNERS_DISABLED',
    'PARTNER_HOLDS',
    'PARTNER_KEYS',
    'RATE_LIMITED',
    'SUBMISSIONS',
    'TEST_ACCOUNTS',
    'TRAFFIC',
  ];
  expect(opened.map(({ name }) => name).toSorted()).toEqual(stored);
  expect(opened.filter(({ room }) => FLOORS[room] !== 2)).toEqual([]);
});

test('code above floor 2 names no collection of MongoDB', () => {
  const names = new Set(opened.map(({ name }) => name));
  const faults = faultsOf((file) =>
    (FLOORS[file.room] ?? 0) <= 2
      ? []
      : [
          ...importedNames(file).map((name) =>
            names.has(name) || name.endsWith('Collection')
              ? `${file.path} imports ${name}`
              : undefined,
          ),
          file.text.includes('.collection') ? `${file.path} opens a collection` : undefined,
        ],
  );
  expect(faults).toEqual([]);
});

test('a room reads and writes only its own collections', () => {
  const owners = new Map([
    ['submissionCollection', 'internal/submission'],
    ['rateLimitedCollection', 'internal/submission'],
    ['accountCollection', 'internal/account'],
    ['trafficCollection', 'internal/traffic'],
  ]);
  const guests = faultsOf((file) =>
    importedNames(file).map((name) =>
      (owners.get(name) ?? file.room) === file.room ? undefined : `${file.path} imports ${name}`,
    ),
  );
  expect(guests).toEqual([]);
});

test('only cmd/ imports the settings, and only one file of the platform reads the environment', () => {
  const faults = faultsOf((file) => [
    ...file.imports.map((path) =>
      path.startsWith('internal/settings/') && !/^(cmd|internal\/settings)\//.test(file.path)
        ? `${file.path} imports the settings`
        : undefined,
    ),
    file.text.includes('process.env') && file.path !== 'internal/platform/process/config.ts'
      ? `${file.path} reads process.env`
      : undefined,
  ]);
  expect(faults).toEqual([]);
});

test('the service imports nothing from test/ or deploy/', () => {
  expect(
    faultsOf((file) =>
      file.imports.map((to) =>
        /^(test|deploy)\//.test(to) ? `${file.path} imports ${to}` : undefined,
      ),
    ),
  ).toEqual([]);
});

test('clients share only bounds that test/judges/neighbour.test.ts attacks', () => {
  const bound = /new FairShares(?:<\w+>)?\(\s*([\w.]+)|new FairReads\(\{\s*max: ([\w.]+)/g;
  const used = files.flatMap(({ text }) =>
    [...text.matchAll(bound)].map(([, ofShares, ofReads]) => ofShares ?? ofReads),
  );
  // FairReads hands its own bound on, and over-limit.test.ts attacks the names of counts.
  const attacked = Object.keys(SHARED).map((name) => `SHARED.${name}`);
  expect(new Set(used)).toEqual(new Set([...attacked, 'max', 'OVER_LIMIT_ADDRESSES']));
});

test('each name of a type has one meaning', () => {
  const declared = files.flatMap(({ path, text }) =>
    [...text.matchAll(/^(?:export )?(?:abstract )?(?:interface|type|class) (\w+)/gm)].map(
      ([, name]) => ({ name, path }),
    ),
  );
  expect(declared.length).toBeGreaterThan(300);
  const places = [...Map.groupBy(declared, ({ name }) => name)].map(([name, all]) => ({
    name,
    paths: [...new Set(all.map(({ path }) => path))],
  }));
  expect(places.filter(({ paths }) => paths.length > 1)).toEqual([]);
});

test('each room says what it owns, its entry and what may not be in it', () => {
  const rooms = [...new Set(files.map(({ room }) => room))].filter((room) =>
    room.startsWith('internal/'),
  );
  expect(rooms.length).toBeGreaterThan(10);
  const lines = (room: string): number => {
    const page = join(ROOT, room, 'README.md');
    return existsSync(page) ? readFileSync(page, 'utf8').trimEnd().split('\n').length : 0;
  };
  expect(rooms.filter((room) => lines(room) === 0 || lines(room) > 15)).toEqual([]);
});

test('mains and files are short, and each file opens with its purpose', () => {
  const faults = faultsOf((file) => {
    const lines = file.text.split('\n').length;
    return [
      file.path.endsWith('/main.ts') && lines > MAIN_MAX_LINES
        ? `${file.path} has ${lines} lines`
        : undefined,
      lines > FILE_MAX_LINES ? `${file.path} has ${lines} lines` : undefined,
      /^(#!.*\n)?\/\*\*/.test(file.text)
        ? undefined
        : `${file.path} does not open with a sentence on what it is for`,
    ];
  });
  expect(faults).toEqual([]);
});

test('generated documentation is up to date', async () => {
  for (const [file, text] of await generatedDocs()) {
    expect({ file, text: readFileSync(join(ROOT, file), 'utf8') }).toEqual({ file, text });
  }
});

test('the lock file names no registry', () => {
  const resolved = readFileSync(join(ROOT, 'package-lock.json'), 'utf8').match(/"resolved": .*/g);
  expect(resolved).toEqual(['"resolved": "internal/operators",']);
});

/** What is declared as a collection, or holds what a collection's constructor returns. */
function readCalls(): RegExp {
  const constructors = files.flatMap(({ text }) =>
    [...text.matchAll(/const (\w+) =(?: <[^(]*>)? ?\(db: Db\b[^;]*?db\.collection</g)].map(
      ([, name = '']) => name,
    ),
  );
  expect(constructors.length).toBeGreaterThan(4);
  const constructed = `(?:${constructors.join('|')})(?:<\\w+>)?\\(`;
  const held = new RegExp(`(\\w+)(?:\\??: (?:readonly )?Collection<| = ${constructed})`, 'g');
  const names = files.flatMap(({ text }) => [...text.matchAll(held)].map(([, name = '']) => name));
  expect(names.length).toBeGreaterThan(20);
  const receiver = `(?:\\b(?:${[...new Set(names)].join('|')})|${constructed}[^)]*\\))`;
  // Only `find` is also a method of arrays and of our own stores.
  const others = 'findOne|aggregate|countDocuments|estimatedDocumentCount|distinct';
  return new RegExp(`(?:\\.(?:${others})|${receiver}\\s*\\.find)(?:<.*>)?\\(`, 'g');
}

test('every read of the database ends at the server', () => {
  const calls = readCalls();
  const reads = files
    .flatMap(({ path, text }) =>
      [...text.matchAll(calls)].map(({ index, 0: call }) => ({
        at: `${path}:${text.slice(0, index).split('\n').length}`,
        words: inParentheses(text, index + call.length),
      })),
    )
    .filter(({ words }) => !/^['(]/.test(words));
  expect(reads.length).toBeGreaterThan(30);
  const unbounded = reads.filter(
    ({ words }) => !/\bbounded\b|\bmaxTimeMS\b|,\s*options\b/.test(words),
  );
  expect(unbounded.map(({ at }) => at)).toEqual([]);
});
