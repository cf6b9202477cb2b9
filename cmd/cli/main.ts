#!/usr/bin/env node
/** The operator's command `partner-ingest`: one command line, one answer, one exit code. */
import { runCli } from './wire.ts';

process.exitCode = await runCli(process.argv.slice(2));
