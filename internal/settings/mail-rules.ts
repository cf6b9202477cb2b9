/** Rules for the settings of the e-mail. */
import { z } from 'zod';
import { isEmailAddress } from '../application/email-address.ts';
import { isClientName } from '../mail/client-name.ts';

export const email = z.string().refine(isEmailAddress, 'must be an e-mail address');
export const clientName = z
  .string()
  .refine(
    isClientName,
    'must be a fully qualified host name, or an address literal such as [192.0.2.1]',
  );
/** An empty setting counts as unset. */
export const oneLine = (max: number) =>
  z
    .string()
    .regex(
      new RegExp(`^[^\\p{Cc}]{0,${max}}$`, 'u'),
      `must be one line of at most ${max} characters`,
    );
