# $1 guard file, $2 nonce, $3 limit in seconds, $4 job, $5 working directory, then the command.
# Builtins only on the way to the command: each further process costs milliseconds. All names begin WAKEBUS_, which
# requests may not set, so that no caller's variable is changed.
WAKEBUS_FILE=$1 WAKEBUS_NONCE=$2 WAKEBUS_LIMIT=$3 WAKEBUS_DIR=$5 WAKEBUS_START=0 WAKEBUS_GROUP=
WAKEBUS_JOB=$4
export WAKEBUS_JOB
shift 5
wakebus_stat() { WAKEBUS_GROUP=$3; shift 19; WAKEBUS_START=$1; }
read -r WAKEBUS_R </proc/$$/stat && wakebus_stat ${WAKEBUS_R##*) }

# A failed redirection on printf is an ordinary failure; on ":" or exec it would end dash with 2.
wakebus_take() { set -C; printf '%s %s %s\n' "$$" "$WAKEBUS_START" "$WAKEBUS_NONCE" >"$WAKEBUS_FILE"; } 2>/dev/null
# After 48 h the journal has forgotten the job, and its id stands for a new one. The folder lets one dial at a time judge
# the file's age and take it: else one could remove what the other has just taken.
wakebus_renew() {
	mkdir "$WAKEBUS_FILE.old" || return 1
	find "$WAKEBUS_FILE" -type f -mmin +2880 -exec rm -f {} +
	wakebus_take
	WAKEBUS_R=$?
	rmdir "$WAKEBUS_FILE.old"
	return "$WAKEBUS_R"
} 2>/dev/null
wakebus_take || {
	[ ! -d "${WAKEBUS_FILE%/*}" ] && mkdir -p "${WAKEBUS_FILE%/*}" 2>/dev/null && wakebus_take
} || wakebus_renew || exit 97
set +C

cd "$WAKEBUS_DIR" 2>/dev/null || {
	mkdir -p "$WAKEBUS_DIR" || sudo -n install -d -o "$(id -u)" "$WAKEBUS_DIR"
} >/dev/null 2>&1 && cd "$WAKEBUS_DIR" || {
	printf 'exit 126\n' >>"$WAKEBUS_FILE"
	printf 'wakebus: cannot enter the working directory\n' >&2
	exit 126
}

# Whoever signals the group must not silence the guard: it still has the exit line to write.
trap : TERM INT HUP QUIT USR1 USR2
WAKEBUS_TARGET=0
[ "$WAKEBUS_GROUP" = "$$" ] || WAKEBUS_TARGET=$$

# The limit of its own, for a command that nobody watches any more. Ended by ALRM, which leaves no sleep behind.
(
	trap '' TERM INT HUP QUIT USR1 USR2
	trap 'WAKEBUS_OVER=1; kill -KILL "$WAKEBUS_NAP"' ALRM
	WAKEBUS_OVER='' WAKEBUS_NAP=''
	wakebus_nap() {
		sleep "$1" &
		WAKEBUS_NAP=$!
		[ -z "$WAKEBUS_OVER" ] || kill -KILL "$WAKEBUS_NAP"
		wait "$WAKEBUS_NAP"
		[ -z "$WAKEBUS_OVER" ] || { wait "$WAKEBUS_NAP"; wakebus_prune; exit; }
	}
	# A sandbox that never sleeps is never warmed up, which prunes too. Once an hour of its uptime, behind a command.
	wakebus_prune() {
		WAKEBUS_DIR=${WAKEBUS_FILE%/*}
		read -r WAKEBUS_R WAKEBUS_NAP </proc/uptime || return
		WAKEBUS_R=${WAKEBUS_R%.*}
		read -r WAKEBUS_NAP <"$WAKEBUS_DIR/.pruned" || WAKEBUS_NAP=
		case $WAKEBUS_NAP in '' | *[!0-9]* | ????????????*) WAKEBUS_NAP=$((WAKEBUS_R + 1)) ;; esac
		[ "$WAKEBUS_NAP" -le "$WAKEBUS_R" ] && [ "$((WAKEBUS_R - WAKEBUS_NAP))" -lt 3600 ] && return
		printf '%s\n' "$WAKEBUS_R" >"$WAKEBUS_DIR/.pruned"
		find "$WAKEBUS_DIR" -type f -mmin +2880 -exec rm -f {} +
	}
	wakebus_nap "$WAKEBUS_LIMIT"
	printf 'limit\n' >>"$WAKEBUS_FILE"
	kill -TERM "$WAKEBUS_TARGET"
	wakebus_nap 5
	kill -KILL "$WAKEBUS_TARGET"
) </dev/null >/dev/null 2>&1 &
WAKEBUS_WATCH=$!

# The command keeps the real stderr; the shell's own remarks ("Terminated") are not its output. exec in a subshell so
# that argv is a program, never one of the shell's builtins.
exec 9>&2 2>/dev/null
( exec "$@" 2>&9 9>&- )
WAKEBUS_R=$?
printf 'exit %s\n' "$WAKEBUS_R" >>"$WAKEBUS_FILE"
kill -ALRM "$WAKEBUS_WATCH"
exit "$WAKEBUS_R"
