/** An invalid configuration, with all faults in one message. */

export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly faults: readonly string[];
  constructor(process: string, faults: readonly string[]) {
    super(
      `${process}: ${faults.length} fault(s) in the configuration:\n${faults.map((fault) => `  ${fault}`).join('\n')}`,
    );
    this.faults = faults;
  }
}
