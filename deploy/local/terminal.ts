/** Output for people: coloured on a terminal, plain elsewhere, aligned in both. */
/* oxlint-disable node/no-process-env -- NO_COLOR is the terminal's own convention */

const colours = { bold: '1', dim: '2', red: '31', green: '32', yellow: '33', cyan: '36' } as const;

export type Colour = keyof typeof colours;

/** `text` in a colour, where standard output is a terminal that wants it. */
export function paint(colour: Colour, text: string): string {
  const wanted = process.stdout.isTTY && process.env['NO_COLOR'] === undefined;
  return wanted ? `\u001b[${colours[colour]}m${text}\u001b[0m` : text;
}

/** Rows with their columns padded to the same width. */
export function table(rows: readonly (readonly string[])[], indent = '  '): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map(
      (row) =>
        indent +
        row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd(),
    )
    .join('\n');
}
