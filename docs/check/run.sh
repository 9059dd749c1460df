#!/usr/bin/env bash
# Holds the contract to AsyncAPI's rules, to the code and to the last commit. Needs Node 20, npm and Go.
# BASE is the commit to compare with; by default the last one, or the one before where nothing is changed since.
set -euo pipefail
cd "$(dirname "$0")"
[ -d node_modules ] && cmp -s package-lock.json node_modules/.from || { npm ci --silent && cp package-lock.json node_modules/.from; }
node check.mjs
node --test --test-reporter=dot ./*.test.mjs
go test ./...
if base=${BASE:-$(git diff --quiet HEAD -- ../asyncapi.yaml ../schema && echo HEAD^ || echo HEAD)} &&
  git cat-file -e "$base:docs/asyncapi.yaml" 2>/dev/null; then
  old=$(mktemp -d)
  trap 'rm -rf "$old"' EXIT
  git -C "$(git rev-parse --show-toplevel)" archive "$base" docs/asyncapi.yaml docs/schema | tar -x -C "$old"
  node breaking.mjs "$old/docs" ..
else
  echo "contract: there is no earlier state to compare with"
fi
