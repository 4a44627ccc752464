#!/bin/sh
# rustdoc-check.sh ARGUMENT...
#
# rustdoc that checks comments without writing pages, which takes most of its time. cargo runs it in
# place of rustdoc. The option is an unstable one of the pinned compiler; RUSTC_BOOTSTRAP allows it, set
# here and not for cargo, so that nothing else is built with it.
RUSTC_BOOTSTRAP=1 exec rustdoc -Z unstable-options --check "$@"
