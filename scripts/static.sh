#!/usr/bin/env bash
# static.sh [--check | --try] [MACHINE [OUTPUT]]
#
# Builds `horolog` for MACHINE (x86_64 or aarch64; by default this one) as a program that needs no
# library of the system it runs on, and writes it to OUTPUT with what has to be passed on with it: the
# licences of all that is in it, a bill of materials, and the source of libelf, which is under LGPL-3
# or GPL-2.
# OUTPUT is a directory, by default `static/MACHINE` in the cache. --check builds nothing and says
# what is missing. --try builds without optimisation, to see whether it can be built and runs: it writes
# the program alone, by default to `static/try-MACHINE`.
#
# The C compiler and linker for musl is zig's, in a wheel of PyPI, by hash; Rust's library for musl is
# fetched by rustup. Where that cannot be, a compiler from elsewhere that has it is named in RUSTC.
# libelf and zlib are compiled here from the sources that crate libbpf-sys brings, without their own
# build systems. HOROLOG_ELFUTILS names a directory with another elfutils to link with, such as OUTPUT's
# unpacked and changed. What setup.sh installs is needed as for each build.
#
# Exit status: 0 built, 2 wrong usage, 3 something is missing, 4 a compiler cannot be had from here.
set -euo pipefail

say() { echo "static: $*"; }
die() {
	echo "static: $*" >&2
	exit 3
}
usage() {
	echo "usage: scripts/static.sh [--check | --try] [x86_64|aarch64 [OUTPUT]]" >&2
	exit 2
}

check=false
try=false
default=
case ${1-} in
--check) check=true && shift ;;
--try) try=true && default=try- && shift ;;
esac
[ $# -le 2 ] || usage
machine=${1:-$(uname -m)}
case $machine in
x86_64) headers=x86 ;;
aarch64) headers=aarch64 ;;
*) usage ;;
esac
# Named from where the caller is.
output=${2:+$(realpath -m "$2")}
elf=${HOROLOG_ELFUTILS:+$(realpath -m "$HOROLOG_ELFUTILS")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib.sh
target=$machine-unknown-linux-musl
here=$horolog_cache/static
output=${output:-$here/$default$machine}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$horolog_cache/target}

# --- What is needed ----------------------------------------------------------------------------------

zig_version=0.17.1
# For both machines that it runs on.
zig_hashes=(
	ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54
	b7c5f02fccd40f89b999ee16a1f5ddced56e6182370f8affe494bcf8a28cf07e
)
zig=$here/zig-$zig_version/ziglang

zig_runs() { [ "$("$zig/zig" version 2>/dev/null)" = "$zig_version" ]; }

# What cannot be fetched here is no defect of anything here.
cannot_be_had() {
	echo "static: $*" >&2
	exit 4
}

fetch_zig() {
	local work
	say "fetching zig $zig_version from PyPI into $here: the C compiler for musl (100 MB)"
	mkdir -p "$here"
	work=$(mktemp -d "$here/zig.XXXXXX")
	# shellcheck disable=SC2064  # the directory as it is named now
	trap "rm -rf '$work'" EXIT
	echo "ziglang==$zig_version ${zig_hashes[*]/#/--hash=sha256:}" >"$work/wanted"
	python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: \
		--require-hashes --dest "$work" --requirement "$work/wanted" ||
		cannot_be_had "zig $zig_version cannot be fetched with pip; see its message above"
	python3 -m zipfile -e "$work"/*.whl "$work/tree"
	chmod 755 "$work/tree/ziglang/zig"
	rm -rf "$here/zig-$zig_version"
	mv "$work/tree" "$here/zig-$zig_version"
	zig_runs || die "$zig/zig does not start; remove that directory and run this again"
}

# Whether the compiler has Rust's library for this target.
std_is_there() {
	local library
	library=$("${RUSTC:-rustc}" --print target-libdir --target "$target" 2>/dev/null) || return 1
	compgen -G "$library/libstd-*.rlib" >/dev/null
}

fetch_std() {
	if [ -n "${RUSTC-}" ] || ! command -v rustup >/dev/null; then
		cannot_be_had "${RUSTC:-rustc} has no library for $target; name a compiler that has it in RUSTC"
	fi
	say "installing Rust's library for $target through rustup"
	rustup target add "$target" ||
		cannot_be_had "rustup could not install $target; name a compiler that has it in RUSTC"
}

# The source of libelf and zlib, as cargo fetched it.
sources() {
	cargo metadata --locked --format-version 1 --filter-platform "$target" |
		grep -o '"[^"]*/libbpf-sys-[^"/]*/Cargo.toml"' | head -n 1 | sed 's|^"\(.*\)/Cargo.toml"$|\1|'
}

# --- The libraries in C ------------------------------------------------------------------------------

# As its own build system lists them.
libelf_sources() {
	sed -n '/^libelf_a_SOURCES = /,/[^\\]$/p' "$elf/libelf/Makefile.am" | grep -o '[a-z0-9_]*\.c'
}

# libelf decompresses in memory; libbpf reads the kernel's configuration from a compressed file (gz*.c).
zlib_sources="adler32.c compress.c crc32.c deflate.c gzclose.c gzlib.c gzread.c gzwrite.c infback.c
	inffast.c inflate.c inftrees.c trees.c uncompr.c zutil.c"

# Sets where the sources are, and looks whether they are there.
find_sources() {
	local name
	crate=$(sources) || die "cargo does not know where crate libbpf-sys is; see its message above"
	elf=${elf:-$crate/elfutils}
	[ -d "$elf/libelf" ] || die "$elf has no libelf"
	[ "$(libelf_sources | wc -l)" -gt 100 ] || die "$elf/libelf/Makefile.am lists no sources"
	for name in $(libelf_sources); do
		[ -f "$elf/libelf/$name" ] || die "$elf/libelf/$name is missing"
	done
	for name in $zlib_sources; do
		[ -f "$crate/zlib/$name" ] || die "$crate/zlib/$name is missing"
	done
}

# What configure would find out about musl.
libelf_config() {
	cat <<-END
		#define HAVE_DECL_MEMRCHR 1
		#define HAVE_DECL_RAWMEMCHR 0
		#define HAVE_DECL_MEMPCPY 1
		#define HAVE_DECL_POWEROF2 1
		#define HAVE_DECL_REALLOCARRAY 1
		#define HAVE_DECL_MMAP64 0
		#define HAVE_ERR_H 1
		#define HAVE_VISIBILITY 1
		#define HAVE_BUILTIN_EXPECT 1
		#define STDC_HEADERS 1
		#define _GNU_SOURCE 1
		#include <eu-config.h>
	END
}

# compile SOURCE OPTION...
compile() {
	local source=$1
	shift
	"$cc" -O2 -fPIC -w -ffile-prefix-map="$crate"=. -ffile-prefix-map="$elf"=elfutils "$@" -c "$source"
}

# Makes libelf.a and libz.a, and sets where they are: a directory named after what is in them, since
# cargo links again when it is told of another directory, and does not look whether libraries changed.
build_libraries() {
	local name work
	work=$(mktemp -d "$here/lib.XXXXXX")
	# shellcheck disable=SC2064  # the directory as it is named now
	trap "rm -rf '$work'" EXIT
	libelf_config >"$work/config.h"
	for name in $(libelf_sources); do
		compile "$elf/libelf/$name" -std=gnu99 -DHAVE_CONFIG_H -I"$work" -I"$elf/libelf" \
			-I"$elf/lib" -I"$crate/zlib" -o "$work/elf_$name.o"
	done
	for name in $zlib_sources; do
		compile "$crate/zlib/$name" -DHAVE_UNISTD_H -DHAVE_STDARG_H -o "$work/z_$name.o"
	done
	"$ar" rcsD "$work/libelf.a" "$work"/elf_*.o
	"$ar" rcsD "$work/libz.a" "$work"/z_*.o
	libraries=$here/lib-$machine-$(cat "$work"/lib*.a | sha256sum | cut -c 1-16)
	mkdir -p "$libraries"
	mv "$work"/lib*.a "$libraries"
	rm -rf "$work"
}

# --- Compilers as cargo and crates call them ----------------------------------------------------------

# script NAME BODY : a program with that name.
script() {
	printf '#!/bin/sh\n%s\n' "$2" >"$tools/$1"
	chmod 755 "$tools/$1"
}

# zig calls targets by names of its own, so those that crates give are left out, and checks C for
# undefined behaviour where it is not optimised, which no other compiler does unasked. clang for the
# kernel's programs finds the target's headers in zig, where the system has its own machine's alone.
write_tools() {
	mkdir -p "$tools"
	# shellcheck disable=SC2016  # expanded when it runs
	script cc 'for word; do
	shift
	case $word in --target=*) ;; *) set -- "$@" "$word" ;; esac
done
exec "'"$zig"'/zig" cc -target '"$machine"'-linux-musl -fno-sanitize=undefined "$@"'
	# shellcheck disable=SC2016
	script ar 'exec "'"$zig"'/zig" ar "$@"'
	# shellcheck disable=SC2016
	script clang 'exec "'"${CLANG:-clang}"'" "$@" "-ffile-prefix-map='"$zig"'=zig" \
	-idirafter "'"$zig/lib/libc/include/$headers"'-linux-any" \
	-idirafter "'"$zig/lib/libc/include"'/any-linux-any"'
}

build() {
	local upper
	upper=$(echo "$target" | tr a-z- A-Z_)
	export "CC_${target//-/_}=$cc" "AR_${target//-/_}=$ar" CLANG="$tools/clang"
	export "CARGO_TARGET_${upper}_LINKER=$cc"
	# zig brings musl and what starts a program; rustc's own would be there twice. -s: no symbols.
	export "CARGO_TARGET_${upper}_RUSTFLAGS=-Clink-self-contained=no -Clink-arg=-s ${RUSTFLAGS-}"
	unset RUSTFLAGS
	export LIBBPF_SYS_EXTRA_CFLAGS="-I$elf/libelf -I$crate/zlib"
	export "LIBBPF_SYS_LIBRARY_PATH_${target//-/_}=$libraries"
	if $try; then
		CARGO_PROFILE_DEV_DEBUG=0 cargo build --locked --target "$target" -p horolog-cli
	else
		cargo build --locked --release --target "$target" -p horolog-cli
	fi
}

# --- What is passed on with it ------------------------------------------------------------------------

version_of_elfutils() { sed -n 's/^AC_INIT(\[elfutils\],\[\([0-9.]*\)\].*/\1/p' "$elf/configure.ac"; }
# What stands in quotes after a word in a file.
version_in() { sed -n "s/^#define $2 \"\([0-9.]*\)\".*/\1/p" "$1"; }
version_of_llvm() { "$cc" --version | sed -n 's/^clang version \([0-9.]*\).*/\1/p'; }

# part NAME VERSION LICENCE PURL HOME WITHIN NOTICE... : a table for `cargo xtask`; WITHIN may be empty.
part() {
	local within=${6:+"within = '$6'"}
	printf "[[part]]\nname = '%s'\nversion = '%s'\nlicence = '%s'\npurl = '%s'\nhome = '%s'\n%s\n" \
		"${@:1:5}" "$within"
	printf 'notices = ['
	printf "'%s', " "${@:7}"
	printf ']\n'
}

# What is in it besides crates. In zig's name: compiler-rt, and the functions of the C library that
# it does not take from musl.
list_parts() {
	local zlib musl llvm
	zlib=$(version_in "$crate/zlib/zlib.h" ZLIB_VERSION)
	musl=$(version_in "$zig/lib/libc/musl/src/internal/version.h" VERSION)
	llvm=$(version_of_llvm)
	part libelf "$(version_of_elfutils)" 'LGPL-3.0-or-later OR GPL-2.0-or-later' \
		"pkg:generic/elfutils@$(version_of_elfutils)#libelf" https://sourceware.org/elfutils libbpf-sys \
		"$elf/COPYING-LGPLV3" "$elf/COPYING" "$elf/COPYING-GPLV2"
	part zlib "$zlib" Zlib "pkg:github/madler/zlib@v$zlib" https://zlib.net libbpf-sys "$crate/zlib/LICENSE"
	part musl "$musl" MIT "pkg:generic/musl@$musl" https://musl.libc.org '' "$zig/lib/libc/musl/COPYRIGHT"
	part libunwind "$llvm" 'Apache-2.0 WITH LLVM-exception' \
		"pkg:github/llvm/llvm-project@llvmorg-$llvm#libunwind" https://llvm.org '' \
		"$zig/lib/libunwind/LICENSE.TXT"
	part zig "$zig_version" MIT "pkg:pypi/ziglang@$zig_version" https://ziglang.org '' "$zig/LICENSE"
}

# All of its source that is compiled in, and its licences.
pack_libelf() {
	tar --create --gzip --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 \
		--directory "$elf" --transform 's|^|elfutils/|' \
		--file "$output/elfutils-$(version_of_elfutils)-libelf.tar.gz" \
		AUTHORS COPYING COPYING-GPLV2 COPYING-LGPLV3 configure.ac lib libelf
}

write_readme() {
	cat >"$output/README" <<-END
		horolog $(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1), linked statically for $machine

		NOTICES names the libraries in it and has their licences; horolog.cdx.json names them for programs.
		One of them is libelf of elfutils $(version_of_elfutils), under LGPL-3 or GPL-2, at your choice
		(COPYING-LGPLV3 with COPYING, its GPL-3; COPYING-GPLV2); its source is beside this file.

		To link horolog with another libelf: unpack that source, change it, take the source of
		horolog$(commit), and run there

		    HOROLOG_ELFUTILS=DIRECTORY-OF-elfutils scripts/static.sh $machine

		Whoever passes this program on passes this directory on as it is, and sees to it that the source of
		horolog of that state can be had.
	END
}

commit() {
	local name
	name=$(git -c safe.directory="$PWD" describe --always --dirty --abbrev=12 2>/dev/null) || return 0
	echo ", commit $name"
}

write_output() {
	mkdir -p "$output"
	if $try; then
		install -m 755 "$CARGO_TARGET_DIR/$target/debug/horolog" "$output/horolog"
		return
	fi
	install -m 755 "$CARGO_TARGET_DIR/$target/release/horolog" "$output/horolog"
	install -m 644 "$elf/COPYING" "$elf/COPYING-LGPLV3" "$elf/COPYING-GPLV2" "$output"
	list_parts >"$libraries/parts.toml"
	cargo xtask notices --target "$target" --with "$libraries/parts.toml" >"$output/NOTICES"
	cargo xtask sbom --target "$target" --with "$libraries/parts.toml" >"$output/horolog.cdx.json"
	pack_libelf
	write_readme
}

# --- All of it ----------------------------------------------------------------------------------------

missing=0
# missing WHAT
missing() {
	say "missing: $*"
	missing=1
}

command -v cargo >/dev/null || die "cargo is missing; 'make setup' installs it"
if $check; then
	zig_runs || missing "zig $zig_version; it is fetched with pip"
	zig_runs || python3 -m pip --version >/dev/null 2>&1 || missing "pip of Python 3, to fetch zig with"
	std_is_there || missing "Rust's library for $target; rustup fetches it, or RUSTC names a compiler that has it"
	find_sources
	[ $missing -eq 0 ] || exit 3
	say "all there"
	exit
fi

# One of an earlier state would be taken for this one.
! $try || rm -f "$output/horolog"
zig_runs || fetch_zig
std_is_there || fetch_std
find_sources
tools=$here/tools-$machine
cc=$tools/cc
ar=$tools/ar
write_tools
build_libraries
build
write_output
say "$output/horolog"
