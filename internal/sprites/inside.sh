# $1 marker, $2 folder, $3 path. The part of the path that does not exist yet can hold no link.
if [ -d "$3" ]; then is=folder; elif [ -e "$3" ] && [ ! -f "$3" ]; then is=special; else is=inside; fi
if [ -L "$2" ]; then
	printf '%s outside\n' "$1" # the folder is not where it belongs
	exit 0
fi
p=$3
while [ ! -e "$p" ] && [ ! -L "$p" ] && [ "$p" != / ]; do
	p=${p%/*}
	p=${p:-/}
done
at=$(readlink -f -- "$p" && printf .) && root=$(readlink -f -- "$2" && printf .) || {
	printf '%s outside\n' "$1" # it dangles into nowhere
	exit 0
}
at=${at%??} root=${root%??}
case $at in
"$root" | "$root"/*) printf '%s %s\n' "$1" "$is" ;;
*)
	# A folder that is gone is made again by whoever writes below it; nothing leads out of it.
	case $root in "$at"/* | "${at%/}"/*) [ ! -e "$2" ] && printf '%s inside\n' "$1" && exit 0 ;; esac
	printf '%s outside\n' "$1"
	;;
esac
