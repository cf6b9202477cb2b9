#!/usr/bin/env bash
# Runs a command with Node 24 first on the PATH: the machine's own if it is new enough, else one from the npm registry,
# kept in the user's cache. Usage: with-node.sh COMMAND [ARG ...]
set -euo pipefail

wanted=24
major() { "$1" -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0; }

if (( $(major node) < wanted )); then
  cache="${XDG_CACHE_HOME:-$HOME/.cache}/partner-ingest/node$wanted"
  bin="$cache/node_modules/node/bin"
  if (( $(major "$bin/node") < wanted )); then
    if ! command -v npm > /dev/null; then
      echo "Node.js is needed: install version $wanted, or any version from 20 with npm (it then fetches $wanted)." >&2
      exit 1
    fi
    mkdir -p "$cache"
    exec 9> "$cache/.lock"
    flock 9
    if (( $(major "$bin/node") < wanted )); then
      echo "… fetching Node $wanted (this machine has $(node -v 2>/dev/null || echo none))" >&2
      npm install --prefix "$cache" --no-audit --no-fund "node@$wanted" > "$cache/install.log" 2>&1 || {
        cat "$cache/install.log" >&2
        echo "Node $wanted could not be fetched; install it by hand and try again." >&2
        exit 1
      }
    fi
    exec 9>&-
  fi
  export PATH="$bin:$PATH"
fi
exec "$@"
