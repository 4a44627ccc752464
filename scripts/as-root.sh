#!/usr/bin/env bash
# as-root.sh [-o FILE]... COMMAND [ARGUMENT]...
#
# Runs COMMAND as root if that is possible, as the calling user otherwise: the commands run through
# this one cope with both, and say what they leave out. It refuses to be clever about it: a command
# that fails as root is not tried again without.
#
# -o FILE  COMMAND writes FILE; hand it to the calling user afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh

outputs=()
while getopts o: flag; do
	case $flag in
	o) outputs+=("$OPTARG") ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))

if ! find_root_prefix; then
	echo "as-root: neither root nor a sudo that can be used here: running ${1##*/} as $(id -un)" >&2
	exec "$@"
fi
[ ${#root_prefix[@]} -gt 0 ] || exec "$@"

# sudo starts with an environment of its own. The command needs PATH to find the test peers, and the
# rest to behave as it would have for the caller; HOME stays root's, so that nothing of root's ends
# up in the caller's.
kept=("PATH=$PATH")
for name in CARGO_TARGET_DIR CI HOROLOG_CACHE HOROLOG_STORE NO_COLOR RUST_BACKTRACE; do
	[ -z "${!name-}" ] || kept+=("$name=${!name}")
done

status=0
"${root_prefix[@]}" env "${kept[@]}" "$@" || status=$?
for output in "${outputs[@]}"; do
	[ ! -e "$output" ] || "${root_prefix[@]}" chown -h "$(id -u):$(id -g)" "$output"
done
exit "$status"
