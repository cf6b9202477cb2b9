/** All commands, in the order of the help. */
import { bounce } from './bounce.ts';
import { correctEmail, release } from './account.ts';
import { audit } from './audit.ts';
import type { Command } from './command.ts';
import { erase } from './erase.ts';
import { exportRequests, find } from './find.ts';
import { keysNew } from './keys-new.ts';
import { keysRevoke } from './keys-revoke.ts';
import { keysList, partnerHolds, partnerList } from './lists.ts';
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
