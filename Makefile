# Thin names for what the scripts and cargo do. `make` alone lists them.

target := $(or $(CARGO_TARGET_DIR),target)
musl := x86_64-unknown-linux-musl
arm64 := aarch64-unknown-linux-gnu

# mkfs(8) and its like, which the PATH of a Debian user lacks.
export PATH := $(PATH):/usr/sbin:/sbin

.PHONY: help demo demo-serve build install uninstall deb test-packages package test soak check semver-checks book minimal-versions model report python wheel test-wheel bench-capi bench-nginx bench-parts bench-tokio bench-smoke instructions fuzz sanitizers \
	sanitizers-short sanitizers-address test-kernels test-kernels-short test-kernels-capi test-cgroup2 test-arm64 test-iopoll test-powercut test-powercut-short test-suites test-suites-short clean

help: ## this list
	@awk -F ' *## *' '/^[a-z0-9-]+:.*## / { split($$1, t, ":"); printf "make %-20s %s\n", t[1], $$2 }' Makefile

demo: ## what this machine allows, then reads of a real file compared with pread and threads: 2 minutes
	cargo build --profile demo -p nowait-cli
	$(target)/demo/nowait doctor .
	$(target)/demo/nowait demo .

demo-serve: ## a file server that shows its latencies in a browser, beside those of tokio::fs (LISTEN=127.0.0.1:8080)
	cargo build --release -p nowait-examples --bin serve
	$(target)/release/serve --http --listen $(or $(LISTEN),127.0.0.1:8080) --demo $(target)/demo-serve

build: ## the program, the POSIX AIO library and the C library, as they are installed: 5 minutes
	cargo build --release -p nowait-cli -p nowait-ahead -p nowait-aio -p nowait-capi
	scripts/preload-directory.sh $(target)/release libnowait_aio.so
	scripts/notices.sh >$(target)/release/THIRD-PARTY-NOTICES

install: ## what `make build` has built, manual pages, completions, licences: PREFIX (/usr/local), DESTDIR
	scripts/install.sh $(or $(PREFIX),/usr/local) $(LIBDIR)

uninstall: ## removes what `make install` has installed, with the same PREFIX, LIBDIR and DESTDIR
	scripts/uninstall.sh $(or $(PREFIX),/usr/local) $(LIBDIR)

deb: ## Debian packages of HEAD in target/deb, checked with lintian: 6 minutes
	scripts/install-deps.sh --check --packages
	scripts/build-deb.sh

test-packages: ## the packages built, and installed, tried and purged in a small Debian 12: 9 minutes, needs root
	scripts/install-deps.sh --packages
	$(MAKE) deb
	scripts/test-packages.sh

package: ## the crates as they are published, built from their packages: 2 minutes
	@# cargo would take the sources and the objects of an earlier run, since the versions are the same
	rm -rf $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src/-*/nowait* $(target)/publish
	CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=none cargo publish --workspace --dry-run --allow-dirty --target-dir $(target)/publish

test: ## all tests on this machine's kernel (NOWAIT_TEST_ALL=1: a skipped test fails)
	scripts/install-deps.sh
	cargo test --workspace --all-features --no-run
	@# A build fills the memory with cached files: the kernel would reclaim pages that a test has just read.
	$(target)/debug/nowait evict --flush $(target) >/dev/null || true
	@# Most of the time tests wait for a disk or a process. Some send signals, which are ignored under nohup(1).
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(nproc)))} \
		$$(env --default-signal true 2>/dev/null && echo env --default-signal) cargo test --workspace --all-features --no-fail-fast

model: ## the engine's locks and wake-ups under the model checkers shuttle and loom: 2 minutes
	RUSTFLAGS="--cfg shuttle" cargo test -p nowait --features tokio --lib --target-dir $(target)/model -- model
	RUSTFLAGS="--cfg nowait_loom" cargo test -p nowait --lib --target-dir $(target)/model-loom -- model

soak: ## much of everything for long, bytes checked, nothing left behind (MINUTES=10)
	NOWAIT_SOAK_SECONDS=$$(( $(or $(MINUTES),10) * 60 )) cargo test -p nowait --all-features --test soak -- --nocapture
	NOWAIT_SOAK_SECONDS=$$(( $(or $(MINUTES),10) * 60 )) cargo test -p nowait-object-store --test store soak -- --nocapture
	NOWAIT_SOAK_SECONDS=$$(( $(or $(MINUTES),10) * 60 )) cargo test -p nowait-cli --test run -- hostile::nothing_is_left

check: ## format, lints, documentation, dependencies, musl
	cargo fmt --all --check
	cargo fmt --check --manifest-path bench/Cargo.toml
	cargo fmt --check --manifest-path bench/instructions/Cargo.toml
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo fmt --check --manifest-path python/Cargo.toml
	cargo clippy --workspace --all-targets --all-features -- -D warnings -D clippy::undocumented_unsafe_blocks
	RUSTFLAGS='--cfg fuzzing' cargo check -p nowait-cli
	RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --workspace --all-features
	@if command -v cargo-deny >/dev/null; then \
		echo cargo deny check licenses bans sources; cargo deny check licenses bans sources; \
	else echo scripts/check-deps.sh; scripts/check-deps.sh; fi
	@for target in $(musl) $(arm64); do \
		if rustup target list --installed 2>/dev/null | grep -qx $$target; then \
			echo cargo check -p nowait --target $$target; \
			cargo check -p nowait --target $$target || exit 1; \
		else echo "skipped: check for $$target, which is not installed (rustup target add)"; fi; \
	done
	@if command -v shellcheck >/dev/null; then \
		echo shellcheck -x scripts/*.sh scripts/packages/*.sh examples/nginx/*.sh bench/nginx/*.sh contrib/samba/*.sh contrib/samba/bench/*.sh .ci/run; shellcheck -x scripts/*.sh scripts/packages/*.sh examples/nginx/*.sh bench/nginx/*.sh contrib/samba/*.sh contrib/samba/bench/*.sh .ci/run; \
	else echo "skipped: shellcheck is not installed"; fi

semver-checks: ## what changed in the library's interface since BASE, a tag or commit; needs cargo-semver-checks
	@command -v cargo-semver-checks >/dev/null || { echo "first: cargo install cargo-semver-checks"; exit 1; }
	cargo semver-checks -p nowait --baseline-rev $(or $(BASE),$(error BASE is missing: make semver-checks BASE=v0.1.0))

book: ## the book for users in target/book; needs mdbook
	@command -v mdbook >/dev/null || { echo "first: cargo install mdbook"; exit 1; }
	mdbook build docs

minimal-versions: ## that the libraries build with the oldest dependencies that they declare
	scripts/minimal-versions.sh

python: ## the Python package, built and tested in a virtual environment: 2 minutes (PYTHON=python3.13)
	scripts/install-deps.sh --python
	cargo clippy --manifest-path python/Cargo.toml --target-dir $(target)/python -- -D warnings
	CARGO_TARGET_DIR=$(abspath $(target)) scripts/test-python.sh

wheel: ## the Python wheel in target/wheels, optimised: 8 minutes (PYTHON=python3.13)
	cargo build --release -p nowait-cli -p nowait-ahead -p nowait-aio
	scripts/python-data.sh $(target)/release python/nowait.data
	rm -rf $(target)/wheels
	$(or $(PYTHON),python3) -m venv $(target)/maturin
	$(target)/maturin/bin/pip install --quiet 'maturin>=1.9,<2'
	@# glibc 2.35 is the oldest version that has all functions of the standard library's unwinder here.
	$(target)/maturin/bin/maturin build --release --manifest-path python/Cargo.toml --compatibility manylinux_2_35 \
		--target-dir $(target)/python --out $(target)/wheels
	@ls $(target)/wheels/*.whl

test-wheel: wheel ## the wheel installed in a fresh environment, and all tests of the package: 12 minutes (PYTHON=python3.13)
	scripts/install-deps.sh --python
	scripts/test-python.sh --wheel $(target)/wheels/*.whl

bench-tokio: ## nowait for tokio beside tokio::fs, tokio-uring, compio and more: 10 minutes (ARGS=--help)
	cargo build --release --manifest-path bench/Cargo.toml --target-dir bench/target
	RUSTFLAGS="--cfg tokio_unstable" cargo build --release --features tokio-ring \
		--manifest-path bench/Cargo.toml --target-dir bench/target/ring
	bench/target/release/nowait-bench runtimes --file $(target)/nowait-bench.dat $(ARGS)

report: ## all benchmarks as one page: MINUTES (30), OUT (target/report)
	cargo build --release --manifest-path bench/Cargo.toml --target-dir bench/target
	RUSTFLAGS="--cfg tokio_unstable" cargo build --release --features tokio-ring \
		--manifest-path bench/Cargo.toml --target-dir bench/target/ring
	cargo build --release -p nowait-aio -p nowait-ahead
	bench/target/release/nowait-bench report --minutes $(or $(MINUTES),30) --out $(or $(OUT),$(target)/report) \
		--libraries $(target)/release

bench-capi: ## libnowait beside preadv2 and liburing, in C; needs liburing-dev: 1 minute
	cargo build --release -p nowait-capi
	scripts/link-c.sh $(target)/release/libnowait_capi.a $(target)/capi
	$(or $(CC),cc) -O2 -Wall -Wextra -o $(target)/capi/speed bench/capi/speed.c -I crates/nowait-capi/include \
		-L $(target)/capi -lnowait -luring -Wl,-rpath,$(abspath $(target)/capi)
	$(target)/capi/speed $(target)/capi/speed.dat

bench-nginx: ## nginx with sendfile, aio threads and the module of examples/nginx; needs root, wrk, h2load: 8 minutes
	$(MAKE) build
	bench/nginx/run.sh $(target)

bench-parts: ## times of the parts of a microsecond, with criterion: 2 minutes (ARGS='hit --quick')
	RUSTFLAGS="--cfg nowait_internals" cargo bench --manifest-path bench/Cargo.toml \
		--target-dir bench/target/parts --bench parts -- $(ARGS)

bench-smoke: ## lints and tests of nowait-bench, each of whose contenders reads a small file, and of the counter of instructions
	cargo build -p nowait-aio
	RUSTFLAGS="--cfg nowait_internals" cargo clippy --manifest-path bench/Cargo.toml \
		--target-dir bench/target/parts --all-targets -- -D warnings
	RUSTFLAGS="--cfg nowait_internals" cargo test --manifest-path bench/Cargo.toml \
		--target-dir bench/target/parts --no-fail-fast --bins --tests --bench parts
	cargo clippy --release --locked --manifest-path bench/instructions/Cargo.toml \
		--target-dir bench/target/instructions --all-targets -- -D warnings
	cargo test --release --locked --manifest-path bench/instructions/Cargo.toml --target-dir bench/target/instructions

instructions: ## instructions, system calls and allocations of operations, beside bench/instructions/table.json: 3 minutes (ARGS=--save)
	cargo build --release --locked --manifest-path bench/instructions/Cargo.toml --target-dir bench/target/instructions
	bench/target/instructions/release/instructions --dir bench/target/instructions $(ARGS)

fuzz: ## each fuzz target for SECONDS (60), all at the same time; needs nightly Rust
	scripts/fuzz.sh $(or $(SECONDS),60)

sanitizers: ## the library's tests under Miri, AddressSanitizer and ThreadSanitizer; needs nightly Rust
	scripts/sanitize.sh

sanitizers-short: ## the same with fewer tests
	scripts/sanitize.sh --short

sanitizers-address: ## AddressSanitizer alone, with fewer tests
	scripts/sanitize.sh --short address

test-kernels: ## tests of library, preload and C on Linux 6.1, 6.12 and the newest of Debian unstable, in QEMU; needs root: 6 hours
	scripts/install-deps.sh --kernels
	scripts/test-kernels.sh

test-kernels-short: ## a part of the library's tests on the same kernels: 10 minutes
	scripts/install-deps.sh --kernels
	scripts/test-kernels.sh --short

test-kernels-capi: ## the C library's tests on the same kernels: 2 minutes
	scripts/install-deps.sh --kernels
	cargo build --release -p nowait-capi
	mkdir -p $(target)/capi/tests
	for name in calls engine; do \
		$(or $(CC),cc) -std=gnu11 -O1 -Wall -Wextra -pthread -o $(target)/capi/tests/$$name crates/nowait-capi/tests/c/$$name.c \
			-I crates/nowait-capi/include $(target)/release/libnowait_capi.a -lm -ldl || exit 1; \
	done
	scripts/test-kernels.sh --bins $(target)/capi/tests/calls $(target)/capi/tests/engine --

test-cgroup2: ## nowait run --keep-cache with control groups of version 2, on the same kernels as test-kernels: 3 minutes
	scripts/install-deps.sh --kernels
	scripts/test-cgroup2.sh

test-arm64: ## selected tests of the library on aarch64: Linux 6.1 in QEMU, 30 minutes
	scripts/install-deps.sh --arm64
	rustup target add $(arm64)
	scripts/test-kernels.sh --short --arch arm64 --kernel 6.1

test-powercut: ## nothing acknowledged is lost when the power is cut: 50 guests that are killed, 20 minutes
	scripts/install-deps.sh --kernels
	scripts/test-powercut.sh

test-powercut-short: ## the same with 5 guests
	scripts/install-deps.sh --kernels
	scripts/test-powercut.sh --rounds 5

test-suites: ## test-suites of coreutils, findutils, tar, rsync and git in each mode of nowait run, as without it: 7 hours
	scripts/test-suites.sh

test-suites-short: ## a part of the suite of tar in three modes: 4 minutes
	scripts/test-suites.sh --short

test-iopoll: ## polled completions, on Linux 6.12 in QEMU with an NVMe drive that has poll queues
	scripts/install-deps.sh --kernels
	scripts/test-kernels.sh --kernel 6.12 --test ring::polled

clean: ## remove everything built, kernels too
	cargo clean
	rm -rf bench/target fuzz/target python/target python/nowait.data/scripts python/nowait.data/data/lib python/nowait.data/data/share/man
