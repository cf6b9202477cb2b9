#!/usr/bin/env bash
# Makes what the image holds beside Node, in FOLDER as in the image's root. The Dockerfile and `make release` both run this
# in a copy of the sources. Usage: files.sh dependencies|program FOLDER
set -euo pipefail
what=$1 out=$2

packages() { npm ci --ignore-scripts --no-audit --no-fund --loglevel=error "$@"; }

mkdir -p "$out/app"
case $what in
  dependencies)
    packages --omit=dev --omit=optional
    # Types, source maps and READMEs go, and npm's own note of the install; licences stay.
    find node_modules -type f \
      \( -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' -o -name '*.map' -o -name .package-lock.json \
      -o -iname '*.md' ! -iname 'licen*' \) -delete
    # One copy serves every processor, so there must be no machine code in it.
    if find node_modules -name '*.node' | grep .; then
      echo 'a dependency holds machine code' >&2
      exit 1
    fi
    mv node_modules "$out/app/"
    ;;
  program)
    [ -d node_modules ] || packages
    npm run -s build
    chmod +x dist/cmd/cli/main.js
    cp -R dist package.json LICENSE "$out/app/"
    mkdir -p "$out/usr/local/bin"
    ln -s /app/dist/cmd/cli/main.js "$out/usr/local/bin/partner-ingest"
    ;;
esac
