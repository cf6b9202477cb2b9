/** All commands, in the order of the help. */
import { bounce } from './bounce.ts';
import { correctEmail, release } from './account.ts';
import { audit } from './audit.ts';
import type { Command } from './command.ts';
import { erase } from './erase.ts';
import { exportRequests, find } from './find.ts';
import { keysList, keysNew } from './keys.ts';
import { keysRevoke } from './keys-revoke.ts';
import { partnerHolds, partnerList } from './partner-lists.ts';
import { partnerFlags } from './partner.ts';
import { close, reopen, resend, retry } from './retry.ts';
import { show } from './show.ts';

export const commands: readonly Command[] = [
  show,
  find,
  retry,
  resend,
  close,
  reopen,
  correctEmail,
  release,
  bounce,
  exportRequests,
  audit,
  erase,
  partnerList,
  ...partnerFlags,
  partnerHolds,
  keysNew,
  keysList,
  keysRevoke,
];
