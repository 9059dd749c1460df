#!/usr/bin/env bash
# Runs the examples against a dev instance of their own. Needs Go, Node 20 and npm. WORKER names a built worker; without
# it one is built.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
work=$(mktemp -d)
pid=
end() {
  [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; } || true
  rm -rf "$work"
}
trap end EXIT

worker=${WORKER:-}
[ -n "$worker" ] || { (cd "$root" && go build -o "$work/worker" ./cmd/worker); worker=$work/worker; }

cd web
[ -d node_modules ] && cmp -s package-lock.json node_modules/.from || { npm ci --silent && cp package-lock.json node_modules/.from; }
node types.mjs --check
npx --no-install tsc -p .
node --test --test-reporter=dot dist/*.test.js

"$worker" dev --dir "$work/dev" --no-terminal >"$work/out" 2>"$work/log" &
pid=$!
for _ in $(seq 600); do # the ready line is the signal; this only bounds the wait for it
  grep -q '^wakebus dev: ready$' "$work/out" && break
  kill -0 "$pid" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 0.1
done
grep -q '^wakebus dev: ready$' "$work/out" || { echo "the dev instance is not ready after a minute" >&2; exit 1; }
set -a
. "$work/dev/env"
set +a
node dist/check.js || { tail -20 "$work/log" >&2; exit 1; }
cd "$root"
go run ./docs/examples/go || { tail -20 "$work/log" >&2; exit 1; }
