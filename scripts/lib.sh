# shellcheck shell=bash disable=SC2034  # what is set here is used where this is sourced
# What several scripts here share: where Horolog keeps what it builds and fetches, and how a command
# becomes root. Sourced, never run; it changes nothing by itself.

# Outside the clone, so that a fresh clone starts warm and `git clean` costs no rebuild.
horolog_cache=${HOROLOG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/horolog}

# Sets the array `root_prefix` to what must stand before a command for it to run as root: nothing for
# root itself, sudo where it works. Fails where neither is possible. A password is asked for only at
# a terminal, so nothing hangs where nobody can answer.
find_root_prefix() {
	root_prefix=()
	[ "$(id -u)" -ne 0 ] || return 0
	command -v sudo >/dev/null || return 1
	if sudo -n true 2>/dev/null; then
		root_prefix=(sudo -n)
	elif [ -t 0 ] && [ -t 2 ] && sudo -v; then
		root_prefix=(sudo)
	else
		return 1
	fi
}
