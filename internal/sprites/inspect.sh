# $1 marker, $2 guard file, $3 seconds to wait for its end, $4 signal for its process group (may be empty).
# Only lines that begin with the marker are ours; complete lines of the file alone are shown.
wb_stat() { wb_z=$1 wb_g=$3; shift 19; wb_t=$1; }
wb_look() {
	wb_p='' wb_s='' wb_n='' wb_e='' wb_a=dead
	{ read -r wb_p wb_s wb_n; } <"$2" || return 0
	while read -r wb_l; do case $wb_l in exit*) wb_e=1 ;; esac; done <"$2"
	case $wb_p in '' | *[!0-9]*) return 0 ;; esac
	{ read -r wb_r </proc/"$wb_p"/stat; } 2>/dev/null || return 0
	wb_stat ${wb_r##*) }
	[ "$wb_z" = Z ] || [ "$wb_t" != "$wb_s" ] || wb_a=alive
}
[ -f "$2" ] || { printf '%s none\n' "$1"; exit 0; }
wb_look "$@"
[ -z "$4" ] || [ $wb_a = dead ] || if [ "$wb_g" = "$wb_p" ]; then kill -"$4" -"$wb_p"; else kill -"$4" "$wb_p"; fi
wb_i=0
while [ $wb_a = alive ] && [ -z "$wb_e" ] && [ $wb_i -lt "$3" ]; do
	sleep 1
	wb_i=$((wb_i + 1))
	wb_look "$@"
done
wb_i=0
while read -r wb_l && [ $wb_i -lt 8 ]; do
	printf '%s line %s\n' "$1" "$wb_l"
	wb_i=$((wb_i + 1))
done <"$2"
printf '%s end %s\n' "$1" "$wb_a"
