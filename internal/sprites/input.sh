# $1 how many bytes of input the command gets, then the command. Whoever takes a lost connection over cannot know how much
# of the input had come through it, and sends it again; the command must see it once, and then its end.
WAKEBUS_R=$1
shift
trap : TERM INT HUP QUIT USR1 USR2
exec 9>&2 2>/dev/null
head -c "$WAKEBUS_R" | ( exec "$@" 2>&9 9>&- )
