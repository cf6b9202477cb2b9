/** Every setting in words, for generated documentation. */
import { settings, type ProcessName, type SettingName } from '../internal/settings/settings.ts';
import type { Setting } from '../internal/platform/process/config.ts';

const PROCESSES = 5;

export interface Described {
  readonly name: SettingName;
  readonly default: string;
  readonly usedBy: string;
  readonly secret: boolean;
  readonly about: string;
}

export function describeSettings(): Described[] {
  const all = Object.entries<Setting<ProcessName>>(settings) as [SettingName, Setting][];
  return all.map(([name, setting]) => {
    const whenUnset = setting.schema.safeParse(undefined);
    return {
      name,
      default: whenUnset.success ? [whenUnset.data].flat().join(',') : 'required',
      usedBy: setting.usedBy.length === PROCESSES ? 'all' : setting.usedBy.join(', '),
      secret: setting.secret === true,
      about: setting.about,
    };
  });
}
