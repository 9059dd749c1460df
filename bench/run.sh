#!/usr/bin/env bash
# Measures everything and writes docs/performance.md. Fails when a row of it is missing.
#
#   bench/run.sh                  the full size, about ten minutes on a quiet machine with two cores
#   bench/run.sh --scale 0.05     a twentieth of it, as CI does (add --out FILE to leave the document alone)
#   bench/run.sh --only job,floor measures some sections, keeps their results and prints them; the document stays
#   bench/run.sh --resume         measures only what has no results of this size yet, and writes the document
#
# Each section's results are kept in bench/results (--results DIR) as soon as it ends, so a run that was broken off, or in
# which a section met a busy machine, goes on with --only and --resume. The document tells when each was measured, the
# load, and what other processes used meanwhile.
#
# Needs Go, redis-server, a PostgreSQL server (it starts its own, as an ordinary user) and npm, with which the official
# SDK is installed. As root it installs the first two from Debian when they are missing. Everything it starts listens on
# free loopback ports and is gone at its end. WORKER names a worker binary; one is built without it.
set -euo pipefail
cd "$(dirname "$0")"
unset NATS_URL NATS_CREDS NATS_NKEY REDIS_URL SPRITES_API_URL SPRITES_API_TOKEN SANDBOX_SESSION_SECRET AUTHZ_MODE CODE_EXECUTION_ENABLED
for name in $(compgen -e | grep -E '^(WAKEBUS|OTEL)_' || true); do unset "$name"; done

missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)
command -v npm >/dev/null || { echo "bench: npm is needed to install the official SDK" >&2; exit 1; }
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || { echo "bench: not installed, and not root: ${missing[*]}" >&2; exit 1; }
  apt-get update -qq
  # No cluster and no service of the machine's own: this script starts what it needs.
  mkdir -p /etc/postgresql-common/createcluster.d
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/wakebus-bench.conf
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

sdk=../internal/sprites/emulator/sdk
[ -d "$sdk/node_modules/@fly/sprites" ] && [ -x "$sdk/node_modules/.bin/node" ] || (cd "$sdk" && npm ci >&2)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/bench" .
worker=()
[ -z "${WORKER:-}" ] || worker=(--worker "$WORKER")
"$work/bench" --root .. "${worker[@]}" "$@"
