#!/bin/sh
# Runs the official SDK's checks against the emulator, then proves the checks:
# every mutation of the protocol must turn at least one of them red.
#
#   ./run.sh              checks and mutations
#   ./run.sh checks       checks only
#   ./run.sh mutations    mutations only
#
# EMULATOR_ISOLATION=mapped runs Sprites without namespaces.
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
go build -o "$tmp/serve" ./serve

# start MUTATION: the emulator says where it is on its first two lines.
start() {
	: >"$tmp/out"
	"$tmp/serve" -mutation "$1" -isolation "${EMULATOR_ISOLATION:-auto}" >"$tmp/out" 2>"$tmp/log" &
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

if [ "$what" != checks ]; then
	survived=0
	for m in $("$tmp/serve" -list); do
		start "$m"
		if EMULATOR_BAIL=1 "$node" --test --test-reporter=tap --test-concurrency=2 ./*.test.mjs >"$tmp/red" 2>&1; then
			echo "mutation $m: SURVIVED"
			survived=1
		else
			echo "mutation $m: caught by: $(grep -h -o 'RED .*' "$tmp/red" | head -1 | cut -c5-)"
		fi
		stop
	done
	exit $survived
fi
