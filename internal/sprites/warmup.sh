# $1 marker, $2 workspace, $3 guard folder. Every step may be repeated.
wb_proven() { { printf x >"$1/.wakebus-probe-$2" && rm -f "$1/.wakebus-probe-$2"; } 2>/dev/null; }
wb_folder() {
	mkdir -p "$1" 2>/dev/null
	wb_proven "$1" "$2" && return 0
	sudo -n install -d -o "$(id -u)" -g "$(id -g)" "$1" >/dev/null 2>&1
	wb_proven "$1" "$2"
}
if wb_folder "$2" "$1"; then printf '%s workspace yes\n' "$1"; else printf '%s workspace no\n' "$1"; fi
if wb_folder "$3" "$1"; then printf '%s guard yes\n' "$1"; else printf '%s guard no\n' "$1"; fi
find "$3" -type f -mmin +2880 -exec rm -f {} + 2>/dev/null
if command -v bash >/dev/null 2>&1; then printf '%s bash yes\n' "$1"; fi
printf '%s time %s\n' "$1" "$(date +%s)"
printf '%s done yes\n' "$1"
