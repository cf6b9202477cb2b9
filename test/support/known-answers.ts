/** Answers of well-known relays with their class. */
import { parse } from 'yaml';
import type { Refusal, RefusalClass } from '../../internal/mail/relay-answers.ts';
import { read } from './pages.ts';

type Phase = Refusal['phase'];
type Relay = { readonly source: string } & Readonly<
  Partial<Record<Phase, Record<string, RefusalClass>>>
>;
type Answers = Readonly<Record<string, Relay>>;

export const knownAnswers = Object.entries(
  parse(read('test/support/known-answers.yaml')) as Answers,
).flatMap(([relay, { source: _source, ...phases }]) =>
  Object.entries(phases).flatMap(([phase, answers]) =>
    Object.entries(answers).map(([answer, failure]) => ({
      relay,
      phase: phase as Phase,
      answer,
      failure,
    })),
  ),
);
