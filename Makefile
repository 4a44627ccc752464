# The commands that a person types. Each installs what it misses (scripts/setup.sh), so each works on
# a fresh machine. Builds run as the calling user; what needs root goes through scripts/as-root.sh.
# Scenarios run the binary that users run. Unit tests and the trial of the static binary are built
# without optimisation of the project's own crates, which takes a quarter of the time.

# `sudo -E` keeps the caller's HOME; what root wrote there, the caller could not build on.
ifneq ($(SUDO_UID),)
ifeq ($(shell id -u),0)
export HOME := $(shell getent passwd 0 | cut -d: -f6)
endif
endif

# Outside the clone, so that a second clone starts warm.
export HOROLOG_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/horolog
export CARGO_TARGET_DIR ?= $(HOROLOG_CACHE)/target
CARGO_HOME_BIN := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
PEERS := $(HOROLOG_CACHE)/peers/usr
export PATH := $(CARGO_HOME_BIN):$(PEERS)/sbin:$(PEERS)/bin:$(PATH):/usr/sbin:/sbin

# The date that the binary holds for that of its build: the day of the last commit, so that the same
# source gives the same binary, and commits of one day share what is built.
ifeq ($(SOURCE_DATE_EPOCH),)
COMMITTED := $(shell git -c safe.directory='*' log -1 --format=%ct 2>/dev/null)
ifneq ($(COMMITTED),)
export SOURCE_DATE_EPOCH := $(shell echo $$(($(COMMITTED) - $(COMMITTED) % 86400)))
endif
endif

# Seconds for each fuzz target.
FUZZ_SECONDS ?= 8
# Minutes of the long test.
SOAK_MINUTES ?= 10
BIN := $(CARGO_TARGET_DIR)/release
# What a package says of its parts, and packages.
PAPERS := $(CARGO_TARGET_DIR)/papers
PACKAGES := $(CARGO_TARGET_DIR)/packages
AS_ROOT := scripts/as-root.sh
heading = @printf '\n==> %s\n' '$(1)'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test bench soak build deb static sbom lint fuzz clean setup setup-peers unit fuzz-changed scenarios papers deny static-try

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: build ## the main job on this machine, nothing to configure (DEMO_FLAGS="--time 5")
	$(call heading,horolog demo)
	@$(AS_ROOT) -o result.json -o report.html $(BIN)/horolog demo $(DEMO_FLAGS)

test: setup-peers lint deny unit fuzz-changed static-try scenarios ## everything that must pass before a commit lands

# What measures the program itself is not kept among its user's results.
bench soak: export HOROLOG_STORE := none

bench: setup-peers ## speed against peers on this machine, in ratios (BENCH_FLAGS)
	$(call heading,Benchmarks)
	@cargo build --locked --release -p horolog-cli -p horolog-bench
	@$(AS_ROOT) $(BIN)/horolog-bench $(BENCH_FLAGS)

soak: setup ## a server at twice its capacity, every reply checked (SOAK_MINUTES=60)
	$(call heading,Long test)
	@cargo build --locked --release -p horolog-cli -p horolog-scenarios
	@$(AS_ROOT) $(BIN)/horolog-scenarios soak --minutes $(SOAK_MINUTES)

build: setup ## the horolog binary
	$(call heading,Build)
	@cargo build --locked --release -p horolog-cli
	@echo "built $(BIN)/horolog"

deb: build papers ## a Debian package for this machine's release
	$(call heading,Debian package)
	@scripts/deb.sh $(BIN)/horolog $(PAPERS) $(PACKAGES)

static: setup ## a binary that needs no library of the system (MACHINE=aarch64)
	$(call heading,Static binary)
	@scripts/static.sh $(MACHINE)

sbom: papers ## what the binary is made of (CycloneDX), and the licences of that
	@echo "wrote $(PAPERS)/horolog.cdx.json and $(PAPERS)/NOTICES"

# Another processor, for which the crates that need no C compiler are checked.
OTHER_TARGET := aarch64-unknown-linux-gnu
WITHOUT_C := aes conditions counters cycle discipline http lab launch nts record source stats sys time wire

lint: setup ## formatting, clippy, links of comments, and the project's own rules (cargo xtask tidy)
	$(call heading,Formatting)
	@cargo fmt --all --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check
	$(call heading,Clippy)
	@cargo clippy --locked --release --workspace --all-targets -- -D warnings
	$(call heading,Code for aarch64)
	@if rustup target add $(OTHER_TARGET) 2>/dev/null; then \
		cargo check --locked --quiet --target $(OTHER_TARGET) $(addprefix -p horolog-,$(WITHOUT_C)); \
	else echo "not run: the standard library of $(OTHER_TARGET) cannot be had"; fi
	$(call heading,Links between comments)
	@RUSTDOC=$(CURDIR)/scripts/rustdoc-check.sh \
		RUSTDOCFLAGS='-D rustdoc::broken_intra_doc_links -A rustdoc::private_intra_doc_links' \
		cargo doc --locked --release --workspace --no-deps --document-private-items --quiet
	$(call heading,Tidy)
	@cargo xtask tidy

# Without optimisation, for the scenario that starts it. Where its compiler cannot be had, that is
# status 4, and the scenario is reported as not run.
static-try: setup
	$(call heading,Static binary)
	@scripts/static.sh --try || [ $$? -eq 4 ]

deny: setup-peers ## what may be built in, by deny.toml, and from where
	$(call heading,Dependencies)
	@cargo deny --log-level error --locked check licenses bans sources

fuzz: setup-peers ## every parser against random input (FUZZ_SECONDS=60 for each target)
	$(call heading,Fuzzing)
	@cargo xtask fuzz --seconds $(FUZZ_SECONDS)

# The corpus of every target, and new inputs for those whose sources changed since they last passed.
fuzz-changed: setup-peers
	$(call heading,Fuzzing)
	@cargo xtask fuzz --changed --seconds 4

papers: setup
	@mkdir -p $(PAPERS)
	@cargo xtask sbom >$(PAPERS)/horolog.cdx.json
	@cargo xtask notices >$(PAPERS)/NOTICES

clean: ## remove what was built and fetched; the fuzzing corpus stays
	@cargo clean
	@rm -rf $(HOROLOG_CACHE)/peers $(HOROLOG_CACHE)/debian-root.tar $(HOROLOG_CACHE)/static

setup:
	@scripts/setup.sh

setup-peers:
	@scripts/setup.sh --peers

# `xtask` is tested apart, because what its tests need changes the features of crates that most others
# depend on, and they would be built twice.
unit: setup
	$(call heading,Unit tests)
	@cargo --config .cargo/unit.toml test --locked --release --workspace --exclude xtask
	@cargo --config .cargo/unit.toml test --locked --release -p xtask

# Built as the caller and run as root, hence not `cargo run`.
scenarios: setup-peers papers
	$(call heading,Scenarios)
	@cargo build --locked --release -p horolog-cli -p horolog-scenarios
	@$(AS_ROOT) $(BIN)/horolog-scenarios $(SCENARIO_FLAGS)
