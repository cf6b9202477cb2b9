/** How long records and bodies are kept, by the settings of the processes that end requests. */
import type { RetentionDays } from '../submission/states.ts';
import type { Config, ConfigOf } from './settings.ts';

type Both = keyof ConfigOf<'processor'> & keyof ConfigOf<'cli'>;

export function retentionOf(config: Pick<Config, Both>): RetentionDays {
  return {
    completed: config.RETENTION_COMPLETED_DAYS,
    rejected: config.RETENTION_REJECTED_DAYS,
    undeliverable: config.RETENTION_UNDELIVERABLE_DAYS,
    closed: config.RETENTION_CLOSED_DAYS,
    body: config.RETENTION_BODY_DAYS,
  };
}
