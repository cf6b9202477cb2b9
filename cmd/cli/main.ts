#!/usr/bin/env node
/** Runs the command `partner-ingest`. */
import { runCli } from './wire.ts';

process.exitCode = await runCli(process.argv.slice(2));
