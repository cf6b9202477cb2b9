/** Jest's environment for Node, but tests have the globals of the process. runtime.ts says why. */
import { ModernFakeTimers } from '@jest/fake-timers';
import { TestEnvironment } from 'jest-environment-node';

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default class ProcessEnvironment extends TestEnvironment {
  readonly #console = globalThis.console;

  constructor(...[config, context]: ConstructorParameters<typeof TestEnvironment>) {
    super(config, context);
    // Jest's own modules stay in a context of their own, and `expect.any(Number)` compares with the class it finds there.
    for (const name of Object.getOwnPropertyNames(globalThis)) {
      if (/^[A-Z]/.test(name)) Reflect.set(this.global, name, Reflect.get(globalThis, name));
    }
    this.global = globalThis as typeof this.global;
    this.fakeTimersModern = new ModernFakeTimers({ config: config.projectConfig, global: globalThis });
  }

  /** What is logged after the test file goes to the process's own console again: Jest's would fail the process. */
  override async teardown(): Promise<void> {
    Object.assign(globalThis, { console: this.#console });
    await super.teardown();
  }
}
