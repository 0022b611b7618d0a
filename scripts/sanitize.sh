#!/usr/bin/env bash
# Runs the library's tests under Miri, AddressSanitizer and ThreadSanitizer. Needs nightly Rust, and adds
# the components that are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'USAGE'
usage: scripts/sanitize.sh [--short] [miri|address|thread]...

Runs the library's tests under the tools named, or under all of them. --short runs fewer tests, in less
than 6 minutes on two processors.

  miri      unit tests of nowait: undefined behaviour, memory that is used uninitialised, aliasing, leaks
  address   tests of nowait under AddressSanitizer, with LeakSanitizer at their end
  thread    tests of nowait under ThreadSanitizer
USAGE
}

short=
tools=()
for argument; do
    case $argument in
        -h | --help) usage; exit 0 ;;
        --short) short=yes ;;
        miri | address | thread) tools+=("$argument") ;;
        *) usage >&2; exit 2 ;;
    esac
done
((${#tools[@]})) || tools=(miri address thread)

# Where CI runs, what can't be run is a failure.
missing() {
    echo "skipped: sanitizers, $*" >&2
    [[ -z ${NOWAIT_TEST_ALL:-} ]]
    exit
}

if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal || missing "nightly Rust can't be installed"
fi
rustup component add --toolchain nightly miri rust-src 2>/dev/null ||
    missing "Miri and the standard library's source can't be installed"

target=$(rustc +nightly --version --verbose | sed -n 's/^host: //p')
directory=${CARGO_TARGET_DIR:-target}

# Miri interprets the library on the threads backend: it knows no ring, no system call by number and none
# of the rarer calls of libc, whose stand-ins are in crates/nowait/src/sys/miri.rs. Tests that need more are
# marked there. -Zmiri-disable-isolation lets it open files and have the time.
run_miri() {
    MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation ${MIRIFLAGS:-}" \
        cargo +nightly miri test -p nowait --lib --all-features --target-dir "$directory/miri"
}

# What the kernel reads and writes is not seen: memory that it fills counts as it was before, and neither
# finds a ring that writes to freed memory. What the library does with that memory around it is seen.
run_sanitizer() {
    local tool=$1 tests=("${@:2}") build=(-Zbuild-std)
    # The standard library as it is distributed is no hindrance to AddressSanitizer, and saves its build.
    # ThreadSanitizer has to see the locks and atomics in it.
    if [[ $short && $tool == address ]]; then
        build=()
    fi
    RUSTFLAGS="-Zsanitizer=$tool ${RUSTFLAGS:-}" \
        cargo +nightly test "${build[@]}" --target "$target" --target-dir "$directory/$tool" \
        -p nowait --all-features "${tests[@]/#/--test=}"
}
