#!/usr/bin/env bash
# Runs the examples against a dev instance of their own, and the web app's once more against a worker that takes nothing
# but signed grants. Needs Go, Node 20 and npm. WORKER names a built worker; without it one is built.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
work=$(mktemp -d)
pids=()
end() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap end EXIT

worker=${WORKER:-}
[ -n "$worker" ] || { (cd "$root" && go build -o "$work/worker" ./cmd/worker); worker=$work/worker; }

# start NAME LINE COMMAND...: runs it until the end and returns when it has printed a line that begins so.
start() {
  local name=$1 line=$2
  "${@:3}" >"$work/$name.out" 2>"$work/$name.log" &
  pids=($! "${pids[@]}")
  for _ in $(seq 600); do # the line is the signal; this only bounds the wait for it
    ! grep -q "^$line" "$work/$name.out" || return 0
    kill -0 "${pids[0]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "$name is not ready" >&2
  cat "$work/$name.log" >&2
  return 1
}

cd web
[ -d node_modules ] && cmp -s package-lock.json node_modules/.from || { npm ci --silent && cp package-lock.json node_modules/.from; }
node types.mjs --check
npx --no-install tsc -p .
node --test --test-reporter=dot dist/*.test.js

start dev 'wakebus dev: ready' "$worker" dev --dir "$work/dev" --no-terminal
(
  set -a
  . "$work/dev/env"
  set +a
  node dist/check.js
  cd "$root"
  go run ./docs/examples/go
) || { tail -20 "$work/dev.log" >&2; exit 1; }

# Every grant below is signed by Node and checked by the worker's own verifier.
"$worker" grant key --kid web-1 --key "$work/signing.jwk" --set "$work/keys.json" 2>"$work/key.log" || { cat "$work/key.log" >&2; exit 1; }
start bare 'wakebus dev: ready' "$worker" dev --dir "$work/bare" --no-terminal --workers 0
# A short lease, because a worker that finds an empty Redis admits nobody for as long as an old lease might live.
start worker 'wakebus worker: ready' env WAKEBUS_LEASE_TTL=8s AUTHZ_MODE=grant GRANT_KEYS_FILE="$work/keys.json" "$worker" run --env-file "$work/bare/env"
(
  NATS_URL=$(. "$work/bare/env" && echo "$NATS_URL")
  export NATS_URL GRANT_KEY="$work/signing.jwk"
  node dist/check.js
) || { tail -20 "$work/worker.log" >&2; exit 1; }
