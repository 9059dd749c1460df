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

# The image without an engine: each stage's COPY and RUN lines, in their order and as they stand in the Dockerfile, in a
# folder that holds what they copied and nothing else. A path that is forgotten is missing here too.
lines() { # stage -> its lines, those that go on joined
  awk -v want="$1" '
    /^[[:space:]]*#/ { next }
    { line = line $0; if (sub(/\\$/, "", line)) next; text = line; line = "" }
    text ~ /^FROM / { n = split(text, w, " "); name = (tolower(w[n-1]) == "as") ? w[n] : "image"; next }
    name == want { print text }' "$root/Dockerfile"
}
inside() { # root, workdir, path -> where that is on this machine
  case $3 in /*) printf '%s%s' "$1" "$3" ;; *) printf '%s%s/%s' "$1" "$2" "$3" ;; esac
}
put() { # source, destination: as COPY has it, a folder's contents and not the folder
  if [ -d "$1" ]; then mkdir -p "$2" && cp -R "$1/." "$2/"; elif [[ $2 == */ || -d $2 ]]; then mkdir -p "$2" && cp "$1" "$2"; else mkdir -p "$(dirname "$2")" && cp "$1" "$2"; fi
}
perform() { # stage, its root, roots of other stages by name
  local at=/ word from words
  local -n others=$3
  while read -r word rest; do
    case $word in
      WORKDIR) at=$rest && mkdir -p "$2$at" ;;
      '' | ENV | ARG | USER | STOPSIGNAL | ENTRYPOINT | CMD | VOLUME) ;;
      COPY)
        from=$root/
        if [[ $rest == --from=* ]]; then
          from=${rest%% *} from=${others[${from#--from=}]} rest=${rest#* }
        fi
        read -ra words <<<"$rest"
        for source in "${words[@]::${#words[@]}-1}"; do
          put "$from$source" "$(inside "$2" "$at" "${words[-1]}")"
        done
        ;;
      RUN) (cd "$2$at" && eval "${rest//\/rootfs/$2/rootfs}") ;;
      *) echo "the Dockerfile has a $word, which this check does not know" >&2 && return 1 ;;
    esac
  done < <(lines "$1")
}
export TARGETOS=linux VERSION=v0.0.0-check
TARGETARCH=$(go env GOARCH)
export TARGETARCH
declare -A none=()
perform page "$work/page" none
for try in one two; do
  perform build "$work/build-$try" none
  # The build's base image has the authorities; this machine's stand in for them.
  put /etc/ssl/certs/ca-certificates.crt "$work/build-$try/etc/ssl/certs/ca-certificates.crt"
done
declare -A stages=([build]=$work/build-one [page]=$work/page)
perform image "$work/one" stages
for name in worker terminal-gw setup probe; do
  cmp "$work/build-one/rootfs/usr/local/bin/$name" "$work/build-two/rootfs/usr/local/bin/$name" || { echo "$name is not reproducible" >&2; exit 1; }
  if readelf -d "$work/one/usr/local/bin/$name" 2>/dev/null | grep -q NEEDED; then
    echo "$name is not static" >&2
    exit 1
  fi
done
for path in etc/passwd tmp usr/share/wakebus/page/index.html etc/ssl/certs/ca-certificates.crt; do
  [ -e "$work/one/$path" ] || { echo "the image has no /$path" >&2; exit 1; }
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
for variable in $(grep -ohE '\$WAKEBUS_NATS_[A-Z_]+' ../nats.conf ../nats-cluster.conf | grep -v ROUTES | tr -d '$' | sort -u); do
  grep -q "^$variable=." "$work/secrets/nats.env" || { echo "init.sh does not set $variable" >&2; exit 1; }
done
for file in $(grep -oE 'file: deploy/secrets/[a-z.-]+' "$root/compose.yaml" | sed 's/.*secrets.//'); do
  [ -s "$work/secrets/$file" ] || { echo "init.sh does not make $file" >&2; exit 1; }
done
echo "deploy: everything that is checked without an engine holds"
