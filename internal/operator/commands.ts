/** All commands, in the order of the help. */
import { correctEmail, release } from './account.ts';
import { audit } from './audit.ts';
import type { Command } from './command.ts';
import { erase } from './erase.ts';
import { exportRequests, find } from './find.ts';
import { keysAdopt, keysList, keysNew } from './keys.ts';
import { resend, retry } from './retry.ts';
import { show } from './show.ts';

export const commands: readonly Command[] = [
  show,
  find,
  retry,
  resend,
  correctEmail,
  release,
  exportRequests,
  audit,
  erase,
  keysNew,
  keysList,
  keysAdopt,
];
