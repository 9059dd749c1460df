#!/bin/sh
# Runs the official SDK's checks against the emulator, then proves the checks:
# every mutation of the protocol must turn at least one of them red.
#
#   ./run.sh              checks and mutations
#   ./run.sh checks       checks only
#   ./run.sh mutations    mutations only
#
# EMULATOR_ISOLATION=mapped runs Sprites without namespaces. WORKER is the worker's
# binary, built here when it is not given.
set -eu
cd "$(dirname "$0")"
what=${1:-all}
tmp=$(mktemp -d)
pid=
stop() { if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; pid=; fi; }
trap 'stop; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

[ -d node_modules/@fly/sprites ] && [ -x node_modules/.bin/node ] || npm ci
node=$PWD/node_modules/.bin/node
[ -n "${WORKER:-}" ] || { WORKER=$tmp/worker; go build -o "$WORKER" ../../../../cmd/worker; }

# start MUTATION: the emulator says where it is on its first two lines.
start() {
	: >"$tmp/out"
	"$WORKER" emulator --mutation "$1" --isolation "${EMULATOR_ISOLATION:-auto}" --control --wake 1ms,1ms >"$tmp/out" 2>"$tmp/log" &
	pid=$!
	until [ "$(grep -c = "$tmp/out")" = 2 ]; do kill -0 "$pid" 2>/dev/null || { cat "$tmp/log"; exit 1; }; sleep 0.05; done
	EMULATOR_URL=$(sed -n 's/^SPRITES_API_URL=//p' "$tmp/out")
	EMULATOR_TOKEN=$(sed -n 's/^SPRITES_API_TOKEN=//p' "$tmp/out")
	export EMULATOR_URL EMULATOR_TOKEN
}

if [ "$what" != mutations ]; then
	start ""
	"$node" --test --test-reporter=spec --test-concurrency=2 ./*.test.mjs
	stop
fi

# A mutation counts as caught when the check that is about it turns red; the same
# check is green without it, or the run above has failed. A test of the emulator
# holds that mutations.txt names every mutation.
if [ "$what" != checks ]; then
	survived=0
	while read -r mutation name; do
		start "$mutation"
		if EMULATOR_BAIL=1 "$node" --test --test-isolation=none --test-reporter=tap --test-name-pattern="^$name\$" \
			./*.test.mjs >"$tmp/red" 2>&1 </dev/null; then
			echo "mutation $mutation: SURVIVED $name"
			survived=1
		elif grep -q '^RED ' "$tmp/red"; then
			echo "mutation $mutation: caught, $(grep -h '^RED ' "$tmp/red" | head -1 | cut -c5-)"
		else
			cat "$tmp/red"
			survived=1
		fi
		stop
	done <mutations.txt
	exit $survived
fi
