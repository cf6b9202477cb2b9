/** Reads from the Dockerfile how the image is run, so that it stands there alone. */

/** The part `config` of an OCI image. */
export interface ImageConfig {
  readonly User: string;
  readonly WorkingDir: string;
  readonly Env: readonly string[];
  readonly ExposedPorts: Readonly<Record<string, object>>;
  readonly Entrypoint: readonly string[];
  readonly Cmd: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
}

interface Instruction {
  readonly name: string;
  readonly rest: string;
}

interface Stage {
  /** Empty for the last, which is the image. */
  readonly name: string;
  readonly instructions: Instruction[];
}

function stages(dockerfile: string): Stage[] {
  const lines = dockerfile
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .join('\n')
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n')
    .filter((line) => line.trim() !== '');
  const found: Stage[] = [];
  for (const line of lines) {
    const [, name = '', rest = ''] = /^(\w+)\s+(.*)$/.exec(line) ?? [];
    if (name === 'FROM') found.push({ name: / AS (\w+)$/.exec(rest)?.[1] ?? '', instructions: [] });
    else found.at(-1)?.instructions.push({ name, rest });
  }
  return found;
}

/** `given` has values for the build's arguments. Throws at an instruction it does not know. */
export function imageConfig(
  dockerfile: string,
  given: Readonly<Record<string, string>>,
): ImageConfig {
  const last = stages(dockerfile).at(-1)?.instructions ?? [];
  const args: Record<string, string> = {};
  const config = { User: '', WorkingDir: '/', Entrypoint: [] as string[], Cmd: [] as string[] };
  const env: string[] = [];
  const ports: string[] = [];
  const labels: Record<string, string> = {};
  for (const { name, rest } of last) {
    switch (name) {
      case 'ARG':
        for (const [key, value] of pairs(rest)) args[key] = given[key] ?? value;
        break;
      case 'ENV':
        env.push(...pairs(rest).map(([key, value]) => `${key}=${value}`));
        break;
      case 'LABEL':
        for (const [key, value] of pairs(rest)) {
          labels[key] = value.replaceAll(
            /\$\{(\w+)\}/g,
            (_, variable: string) => args[variable] ?? '',
          );
        }
        break;
      case 'USER':
        config.User = rest;
        break;
      case 'WORKDIR':
        config.WorkingDir = rest;
        break;
      case 'EXPOSE':
        ports.push(...rest.split(/\s+/));
        break;
      case 'ENTRYPOINT':
        config.Entrypoint = JSON.parse(rest) as string[];
        break;
      case 'CMD':
        config.Cmd = JSON.parse(rest) as string[];
        break;
      case 'COPY':
        if (!/^--from=(dependencies|program) \/out \/$/.test(rest))
          throw new Error(`COPY ${rest} is not made by files.sh`);
        break;
      default:
        throw new Error(
          `the last stage of the Dockerfile has ${name}, which \`make release\` does not follow`,
        );
    }
  }
  const ExposedPorts = Object.fromEntries(ports.map((port) => [`${port}/tcp`, {}]));
  return { ...config, Env: env, ExposedPorts, Labels: labels };
}

function pairs(text: string): [string, string][] {
  return [...text.matchAll(/([\w.]+)=(?:"([^"]*)"|(\S*))/g)].map(([, key = '', quoted, bare]) => [
    key,
    quoted ?? bare ?? '',
  ]);
}
