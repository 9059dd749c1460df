#!/usr/bin/env bash
# Checks what is deployed without an engine: compose.yaml, the Dockerfile and the manifests by the parsers that will read
# them, the alerts by promtool, and the image's steps one by one. Needs Go, and promtool (Debian: prometheus).
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$root/deploy/check" && go test ./...)

if ! command -v promtool >/dev/null; then
  [ "$(id -u)" = 0 ] || { echo "promtool is missing (Debian: prometheus)" >&2; exit 1; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends prometheus >"$work/apt.log" 2>&1 ||
    { cat "$work/apt.log" >&2; exit 1; }
fi
(cd ../monitoring && promtool check rules --lint=all --lint-fatal alerts.yaml && promtool test rules alerts_test.yaml)

# The build stage's own command, taken from the Dockerfile so that it cannot differ.
build=$(sed -n '/^RUN CGO_ENABLED=0/,/deploy\/probe$/p' "$root/Dockerfile" | sed 's/^RUN //; s/\\$//' | tr '\n' ' ')
[ -n "$build" ] || { echo "the Dockerfile has no build step" >&2; exit 1; }
export TARGETOS=linux VERSION=v0.0.0-check
TARGETARCH=$(go env GOARCH)
export TARGETARCH
for try in one two; do
  mkdir -p "$work/$try/usr/local/bin"
  (cd "$root" && eval "${build//\/rootfs\//$work/$try/}")
done
for name in worker terminal-gw setup probe; do
  cmp "$work/one/usr/local/bin/$name" "$work/two/usr/local/bin/$name" || { echo "$name is not reproducible" >&2; exit 1; }
  if readelf -d "$work/one/usr/local/bin/$name" 2>/dev/null | grep -q NEEDED; then
    echo "$name is not static" >&2
    exit 1
  fi
done
chmod -R a+rX "$work"
run() { "$work/one/usr/local/bin/$1" "${@:2}"; }
# In an image that has nothing else, as nobody.
[ "$(id -u)" != 0 ] || run() { chroot --userspec=65532:65532 "$work/one" "/usr/local/bin/$1" "${@:2}"; }
run worker --version | grep -q v0.0.0-check || { echo "the image's worker does not know its version" >&2; exit 1; }
run terminal-gw --version | grep -q v0.0.0-check
if run probe http://127.0.0.1:1/ 2>/dev/null; then
  echo "a probe of nothing succeeds" >&2
  exit 1
fi
# The secrets that nats.conf and compose.yaml ask for are those that init.sh makes.
WORKER=$work/one/usr/local/bin/worker bash ../init.sh "$work/secrets" >/dev/null
for variable in $(grep -oE '\$WAKEBUS_NATS_[A-Z_]+' ../nats.conf | tr -d '$' | sort -u); do
  grep -q "^$variable=." "$work/secrets/nats.env" || { echo "init.sh does not set $variable" >&2; exit 1; }
done
for file in $(grep -oE 'file: deploy/secrets/[a-z.-]+' "$root/compose.yaml" | sed 's/.*secrets.//'); do
  [ -s "$work/secrets/$file" ] || { echo "init.sh does not make $file" >&2; exit 1; }
done
echo "deploy: everything that is checked without an engine holds"
