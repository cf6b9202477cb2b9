/** Reads a person's name and role from what a provider says, and says why a role is missing. */
import { SignInFault } from './sign-in-faults.ts';

/** `viewer` sees everything masked; `support` may reveal; `operator` may also act. */
export type Role = 'viewer' | 'support' | 'operator';

export interface ClaimOptions {
  /** A claim: a name, or a path such as `realm_access.roles`. */
  readonly rolesClaim: string;
  /** The claim that names the person. */
  readonly nameClaim: string;
  /** The claim's value for each role; nobody is an operator where the console does not act. */
  readonly roles: Readonly<Record<Exclude<Role, 'operator'>, string>> & {
    readonly operator?: string;
  };
}

export type Claims = Readonly<Record<string, unknown>>;

const NAME_CHARACTERS = 200;
/** Of claims that a sentence lists, and their characters. */
const [CLAIMS_LISTED, CLAIM_CHARACTERS] = [40, 60];

const isMap = (value: unknown): value is Claims =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** `path` is a claim's name, or names joined by dots that lead into claims; a name may have dots. */
function valueAt(claims: Claims, path: string): unknown {
  if (Object.hasOwn(claims, path)) return claims[path] ?? undefined;
  for (let dot = path.lastIndexOf('.'); dot > 0; dot = path.lastIndexOf('.', dot - 1)) {
    const inside = Object.hasOwn(claims, path.slice(0, dot)) && claims[path.slice(0, dot)];
    const found = isMap(inside) ? valueAt(inside, path.slice(dot + 1)) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

/** An address that is not verified may be another person's. Cognito says it in text. */
function provenAt(claims: Claims, path: string): unknown {
  const isProven = path !== 'email' || [true, 'true'].includes(claims['email_verified'] as string);
  return isProven ? valueAt(claims, path) : undefined;
}

function nameIn(claims: Claims, { nameClaim }: ClaimOptions): string | undefined {
  const value = provenAt(claims, nameClaim);
  const name = typeof value === 'number' ? String(value) : value;
  // Control and format characters could make one name look like another.
  const isName = typeof name === 'string' && /^[^\p{C}]*[^\p{C}\s][^\p{C}]*$/u.test(name);
  return isName && name.length <= NAME_CHARACTERS ? name : undefined;
}

/** A text, a list, or a map whose names are the roles, as Zitadel's; one may deny a role. */
function listOf(roles: unknown): readonly unknown[] {
  if (!isMap(roles)) return roles === undefined ? [] : [roles].flat();
  return Object.keys(roles).filter((name) => ![false, null].includes(roles[name] as null));
}

function roleIn(claims: Claims, { rolesClaim, roles }: ClaimOptions): Role | undefined {
  const given = listOf(provenAt(claims, rolesClaim)).map(String);
  return (['operator', 'support', 'viewer'] as const).find((role) => {
    const value = roles[role];
    return value !== undefined && given.includes(value);
  });
}

/** The first document counts that has a usable value: each proves only its own. */
export function readOf(documents: readonly Claims[], options: ClaimOptions) {
  const first = <T>(read: (claims: Claims, by: ClaimOptions) => T | undefined): T | undefined =>
    documents.map((claims) => read(claims, options)).find((value) => value !== undefined);
  return { name: first(nameIn), role: first(roleIn) };
}

/** Names, and no values. */
export function cameOf(documents: readonly Claims[]): string {
  const names = [...new Set(documents.flatMap((claims) => Object.keys(claims)))].map((name) =>
    name.replaceAll(/[^!-~]/g, '?').slice(0, CLAIM_CHARACTERS),
  );
  const more = names.length > CLAIMS_LISTED ? ', …' : '';
  return `the claims that came are ${names.slice(0, CLAIMS_LISTED).join(', ')}${more}`;
}

/** Why a person has no role. */
export function roleFault(
  name: string,
  documents: readonly Claims[],
  options: ClaimOptions,
): SignInFault {
  const { rolesClaim } = options;
  const roles = Object.values(options.roles).join(' nor ');
  const refused = (code: 'no_roles' | 'too_many_groups' | 'no_allowed_role', why: string) =>
    new SignInFault(code, `${name} has neither the role ${roles}: ${why}.`);
  const values = documents.map((claims) => provenAt(claims, rolesClaim));
  const given = values.find((value) => value !== undefined);
  if (given !== undefined)
    return refused(
      'no_allowed_role',
      typeof given === 'string'
        ? `the claim ${rolesClaim} came as one other text`
        : `the claim ${rolesClaim} came with ${listOf(given).length} other values`,
    );
  // OpenID Connect Core §5.6.2; Entra ID above 200 groups.
  const isLeftOut = documents.some(
    ({ _claim_names: elsewhere, hasgroups }) =>
      (isMap(elsewhere) && Object.hasOwn(elsewhere, rolesClaim)) ||
      (rolesClaim === 'groups' && [true, 'true'].includes(hasgroups as string)),
  );
  if (isLeftOut)
    return refused(
      'too_many_groups',
      `the provider left the claim ${rolesClaim} out, because the account is in too many groups; use app roles, or let it send only groups assigned to the console`,
    );
  const unproven = rolesClaim === 'email' && documents.some((claims) => 'email' in claims);
  return refused(
    'no_roles',
    `the claim ${rolesClaim} ${unproven ? 'is not verified' : 'did not come'}; ${cameOf(documents)}`,
  );
}
