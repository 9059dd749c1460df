#!/usr/bin/env bash
# Makes the secrets of a new deployment in the folder named, deploy/secrets without a name. What is there stays.
set -euo pipefail
umask 077
dir=${1:-$(dirname "$0")/secrets}
worker=${WORKER:-worker}
mkdir -p "$dir"
# A letter first: nats.conf would read a value of digits as a number.
word() { printf 'w%s' "$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')"; }
keep() { [ -s "$dir/$1" ] || printf '%s' "$2" >"$dir/$1"; }

for user in web web-acme gateway worker ops setup backup route sys; do
  keep "nats-$user" "$(word)"
done
keep redis "$(word)"
keep session-secret "$(word)"
keep sprites-token "$(word)"
[ -s "$dir/grant-keys.json" ] || "$worker" grant key --kid "$(date +%Y-%m)" --key "$dir/signing.jwk" --set "$dir/grant-keys.json"
# A key signs for one issuer: replays of dead letters travel with the operators' own.
[ -s "$dir/operator.jwk" ] || "$worker" grant key --kid "ops-$(date +%Y-%m)" --issuer ops --key "$dir/operator.jwk" --set "$dir/grant-keys.json" --add

read_() { cat "$dir/$1"; }
{
  echo "WAKEBUS_NATS_SERVER_NAME=nats-0"
  for user in web web-acme gateway worker ops setup backup route sys; do
    name=$(printf %s "$user" | tr a-z- A-Z_)
    echo "WAKEBUS_NATS_${name}_PASSWORD=$(read_ "nats-$user")"
  done
} >"$dir/nats.env"
for user in worker gateway setup; do
  printf 'nats://%s:%s@nats:4222' "$user" "$(read_ "nats-$user")" >"$dir/nats-url-$user"
done
printf 'redis://:%s@redis:6379' "$(read_ redis)" >"$dir/redis-url"
printf 'requirepass %s\n' "$(read_ redis)" >"$dir/redis.conf"
# The image's user is not yours, and compose binds a secret's file as it is.
chmod 755 "$dir"
for file in nats-url-worker nats-url-gateway nats-url-setup redis-url redis.conf session-secret sprites-token grant-keys.json; do
  chmod 644 "$dir/$file"
done
echo "secrets are in $dir; signing.jwk is the web app's, operator.jwk the operators', and nobody else's"
