#!/usr/bin/env bash
# deb.sh BINARY PAPERS OUTPUT
#
# Builds OUTPUT/horolog_VERSION-1_ARCHITECTURE.deb around the built BINARY. PAPERS is a directory with
# NOTICES and horolog.cdx.json, which `cargo xtask` prints; `make deb` does all of it. The same binary,
# papers and source give the same package, byte for byte: all its times are SOURCE_DATE_EPOCH, by
# default the day of the last commit.
#
# HOROLOG_RUNNABLE names a binary of the same source that this machine can run, where BINARY is for
# another one: it writes the manual, the completions and the example of a policy. Needs Debian's
# dpkg-dev and binutils; neither root nor a network.
#
# Exit status: 0 built, 2 wrong usage, 3 something is missing.
set -euo pipefail
export LC_ALL=C
umask 022

die() {
	echo "deb: $*" >&2
	exit 3
}

[ $# -eq 3 ] || {
	echo "usage: scripts/deb.sh BINARY PAPERS OUTPUT" >&2
	exit 2
}
binary=$(realpath -e "$1") || die "$1 is missing; build it with: cargo build --release -p horolog-cli"
papers=$(realpath -e "$2") || die "$2 is missing; 'make deb' makes it"
mkdir -p "$3"
output=$(realpath -e "$3")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runnable=${HOROLOG_RUNNABLE:-$binary}
committed=$(git -c safe.directory="$PWD" log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$((committed - committed % 86400))}"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)-1
maintainer="${DEBFULLNAME:-The Horolog authors} <${DEBEMAIL:-maintainers@horolog.example}>"

for program in dpkg-deb dpkg-shlibdeps strip; do
	command -v "$program" >/dev/null || die "$program is missing; install Debian's dpkg-dev and binutils"
done
for paper in NOTICES horolog.cdx.json; do
	[ -s "$papers/$paper" ] || die "$papers/$paper is missing; 'make deb' makes it"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
documents=$tree/usr/share/doc/horolog

# --- What is installed -----------------------------------------------------------------------------

# put MODE SOURCE PLACE
put() { install -D -m "$1" "$2" "$tree/$3"; }

# The machine that the binary is for, by its ELF header, as Debian calls it.
architecture() {
	case $(od -An -tu2 -j18 -N2 "$binary" | tr -d ' ') in
	62) echo amd64 ;;
	183) echo arm64 ;;
	*) die "$binary is for no machine that this package is built for" ;;
	esac
}

# Where it is for another machine, a strip that knows it.
strip_for() {
	[ "$1" = "$(dpkg --print-architecture)" ] && echo strip && return
	echo "${STRIP:-llvm-strip}"
}

lay_program() {
	put 755 "$binary" usr/bin/horolog
	"$(strip_for "$architecture")" "$tree/usr/bin/horolog" || die "cannot strip $binary; set STRIP"
	# Called so, it is ntpperf; in a directory of its own it is in nobody's way.
	install -d "$tree/usr/lib/horolog"
	ln -s ../../bin/horolog "$tree/usr/lib/horolog/ntpperf"
}

lay_services() {
	put 644 packaging/horolog.service usr/lib/systemd/system/horolog.service
	put 644 packaging/horolog-agent.service usr/lib/systemd/system/horolog-agent.service
	put 644 packaging/horolog.preset usr/lib/systemd/system-preset/80-horolog.preset
	put 644 packaging/horolog.sysusers usr/lib/sysusers.d/horolog.conf
}

# The server becomes the user that the package makes; all else is the example as it is.
lay_configuration() {
	sed 's/^#user = "NAME"$/user = "_horolog"/' packaging/horolog.toml >"$work/horolog.toml"
	grep -q '^user = "_horolog"$' "$work/horolog.toml" || die "packaging/horolog.toml has no user"
	put 644 "$work/horolog.toml" etc/horolog/horolog.toml
	"$runnable" campaign agent --show-policy >"$work/policy.toml"
	put 644 "$work/policy.toml" etc/horolog/policy.toml
}

lay_manual() {
	"$runnable" man --date "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)" "$work/man"
	gzip -9n "$work"/man/*.1
	install -d "$tree/usr/share/man/man1"
	install -m 644 "$work"/man/*.1.gz "$tree/usr/share/man/man1"
}

lay_completions() {
	local shell
	for shell in bash zsh fish; do
		"$runnable" completions "$shell" >"$work/$shell"
	done
	put 644 "$work/bash" usr/share/bash-completion/completions/horolog
	put 644 "$work/zsh" usr/share/zsh/vendor-completions/_horolog
	put 644 "$work/fish" usr/share/fish/vendor_completions.d/horolog.fish
}

changelog() {
	cat <<-END
		horolog ($version) unstable; urgency=medium

		  * What changed for those who use Horolog stands in changelog.gz.

		 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
	END
}

# The pages, and the files that they link to, as they stand to each other in the source, so that their
# links hold; of the list of changes Debian has a name of its own.
lay_pages() {
	install -d "$documents/docs/examples" "$documents/docs/images" "$documents/docs/reference" \
		"$documents/packaging/grafana" "$documents/packaging/prometheus"
	install -m 644 ARCHITECTURE.md CONTRIBUTING.md deny.toml "$documents"
	sed 's|(CHANGELOG\.md)|(changelog.gz)|' README.md >"$work/README.md"
	install -m 644 "$work/README.md" "$documents"
	install -m 644 docs/*.md "$documents/docs"
	install -m 644 docs/examples/* "$documents/docs/examples"
	install -m 644 docs/images/* "$documents/docs/images"
	install -m 644 docs/reference/* "$documents/docs/reference"
	install -m 644 packaging/grafana/* "$documents/packaging/grafana"
	install -m 644 packaging/prometheus/* "$documents/packaging/prometheus"
	ln -s ../examples/horolog-after-nfs.service "$documents/packaging"
	install -D -m 644 crates/cycle/examples/program.rs "$documents/crates/cycle/examples/program.rs"
}

lay_documents() {
	install -d "$documents/examples/plans" "$documents/examples/kubernetes"
	install -m 644 "$papers/horolog.cdx.json" "$documents"
	lay_pages
	install -m 644 packaging/agent.env packaging/horolog-after-nfs.service "$documents/examples"
	install -m 644 plans/*.toml "$documents/examples/plans"
	install -m 644 packaging/kubernetes/* "$documents/examples/kubernetes"
	install -m 644 packaging/debian/copyright "$documents/copyright"
	put 644 packaging/debian/lintian-overrides usr/share/lintian/overrides/horolog
	gzip -9nc CHANGELOG.md >"$documents/changelog.gz"
	changelog | gzip -9n >"$documents/changelog.Debian.gz"
	gzip -9nc "$papers/NOTICES" >"$documents/NOTICES.gz"
}

# --- What dpkg is told -----------------------------------------------------------------------------

# The libraries that the binary is linked with, as this distribution packages them; none of a static
# one.
libraries() {
	mkdir -p "$work/shlibs/debian"
	echo "Source: horolog" >"$work/shlibs/debian/control"
	(cd "$work/shlibs" && dpkg-shlibdeps -O "$tree/usr/bin/horolog" 2>"$work/shlibs/said") |
		sed -n 's/^shlibs:Depends=//p' || die "dpkg-shlibdeps: $(cat "$work/shlibs/said")"
}

control() {
	local needs
	needs=$(libraries)
	cat <<-END
		Package: horolog
		Version: $version
		Architecture: $architecture
		Maintainer: $maintainer
		Installed-Size: $(installed_size)
		Depends: ${needs:+$needs, }systemd-standalone-sysusers | systemd
		Suggests: chrony, gpsd, linuxptp
		Section: net
		Priority: optional
		Description: serve time, load-test time servers, and prove when things happen
		 A time server for NTP, NTS and PTP whose fast path runs inside the kernel
		 (XDP), a load generator and qualifier for such servers, and measurements of
		 hosts, paths, relays and periodic tasks, on one machine or on many.
		 .
		 The services are installed disabled. The server confines itself and becomes a
		 user of its own.
	END
}

# In KiB as dpkg-gencontrol counts it, which does not depend on the file system.
installed_size() {
	find "$tree" -printf '%y %s\n' | awk '{ kib += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kib }'
}

# Sums leave out the configuration, which may be changed.
lay_control() {
	install -d "$tree/DEBIAN"
	control >"$work/control"
	(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$work/md5sums"
	put 644 "$work/control" DEBIAN/control
	put 644 "$work/md5sums" DEBIAN/md5sums
	(cd "$tree" && find etc -type f | sort | sed 's|^|/|') >"$work/conffiles"
	put 644 "$work/conffiles" DEBIAN/conffiles
	local script
	for script in postinst prerm postrm; do
		put 755 "packaging/debian/$script" "DEBIAN/$script"
	done
}

architecture=$(architecture)
package=$output/horolog_${version}_$architecture.deb
lay_program
lay_services
lay_configuration
lay_manual
lay_completions
lay_documents
lay_control
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
export DPKG_DEB_COMPRESSOR_TYPE="${DPKG_DEB_COMPRESSOR_TYPE:-xz}"
# One thread, because more of them would cut the file into other pieces.
dpkg-deb --root-owner-group --threads-max=1 --build "$tree" "$package" >/dev/null
echo "$package"
