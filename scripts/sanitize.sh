#!/usr/bin/env bash
# Runs the library's tests under Miri, AddressSanitizer and ThreadSanitizer, and those of the object store under
# AddressSanitizer. Needs nightly Rust, and adds the components that are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'USAGE'
usage: scripts/sanitize.sh [--short] [miri|address|thread]...

Runs the library's tests under the tools named, or under all of them. --short runs fewer tests, in less
than 6 minutes on two processors.

  miri      unit tests of nowait: undefined behaviour, memory that is used uninitialised, aliasing, leaks
  address   tests of nowait under AddressSanitizer, with LeakSanitizer at their end; without --short also
            tests of the object store
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

# In CI (NOWAIT_TEST_ALL=1) a skip is a failure.
missing() {
    if [[ -n ${NOWAIT_TEST_ALL:-} ]]; then
        echo "sanitizers: FAILED: $*; rustup's message is above" >&2
        exit 1
    fi
    echo "skipped: sanitizers, $*" >&2
    exit 0
}

if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal || missing "nightly Rust cannot be installed"
fi
# Only these need more than the compiler and its standard library.
[[ $short && ${tools[*]} == address ]] || rustup component add --toolchain nightly miri rust-src ||
    missing "Miri and the source of the standard library cannot be installed"

# The tests of forks are not among them: ThreadSanitizer starts no thread in a child of a process with threads,
# and a child that ends by _exit(2) is not looked at for leaks. Programs of tests/, then modules in them.
programs=(--test engine)
address=(hostile:: dropped_future:: cancel:: queue_full::)
thread=(many_threads:: dropped_future:: cancel::)
if [[ ! $short ]]; then
    programs+=(--test read --test process --test tokio)
    address+=(bytes:: many_threads:: denied_ring:: ours::)
    thread+=(hostile:: queue_full:: ours::)
fi

# The object store borrows bytes of mappings, and drops futures and uploads. Tests that change the user are not among
# these: LeakSanitizer may not trace such a process.
store=(v0_13::kinds:: v0_13::mapped:: v0_13::reads:: v0_13::soak:: v0_13::writes::)

host=$(rustc +nightly --version --verbose | sed -n 's/^host: //p')
directory=${CARGO_TARGET_DIR:-target}

# Miri interprets the library on the threads backend: it knows no ring, no system call by number and none
# of the rarer calls of libc, whose stand-ins are in crates/nowait/src/sys/miri.rs. Tests that need more are
# marked there. -Zmiri-disable-isolation lets it open files and have the time.
run_miri() {
    MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation ${MIRIFLAGS:-}" \
        cargo +nightly miri test -p nowait --lib --all-features --target-dir "$directory/miri"
    # The other modules of this crate ask the kernel.
    MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-disable-isolation ${MIRIFLAGS:-}" \
        cargo +nightly miri test -p nowait-residency --lib --target-dir "$directory/miri" -- \
        process:: page_map:: table::
}

# What the kernel reads and writes is not seen: neither tool notices a ring that writes to freed memory, or
# a read in another thread that races with the kernel's write. What the library itself does with that memory
# is seen.
#
# run_sanitizer TOOL ARGUMENT...: the arguments of cargo test select the tests.
run_sanitizer() {
    local tool=$1 build=(-Zbuild-std) flags="-Zsanitizer=$1"
    # The standard library as it is distributed is no hindrance to AddressSanitizer, and spares its build.
    # ThreadSanitizer has to see the locks and atomics in it.
    if [[ $short && $tool == address ]]; then
        build=()
    fi
    # ThreadSanitizer knows descriptors by libc's functions, which rustix does not call if not told to.
    [[ $tool == thread ]] && flags+=" --cfg rustix_use_libc"
    # By frame pointers the stacks of allocations are whole, and suppressions find the test's name in them.
    RUSTFLAGS="$flags -Cforce-frame-pointers=yes" \
        ASAN_OPTIONS=detect_stack_use_after_return=1 \
        LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp \
        TSAN_OPTIONS=suppressions=$PWD/scripts/tsan.supp \
        cargo +nightly test "${build[@]}" --target "$host" --target-dir "$directory/$tool" \
        --no-fail-fast "${@:2}"
}

run_address() {
    local failed=
    run_sanitizer address -p nowait --all-features "${programs[@]}" -- "${address[@]}" || failed=yes
    if [[ ! $short ]]; then
        run_sanitizer address -p nowait-object-store --test store -- "${store[@]}" || failed=yes
    fi
    [[ ! $failed ]]
}

failed=()
for tool in "${tools[@]}"; do
    started=$SECONDS
    case $tool in
        miri) run_miri ;;
        address) run_address ;;
        thread) run_sanitizer thread -p nowait --all-features "${programs[@]}" -- "${thread[@]}" ;;
    esac || failed+=("$tool")
    echo "sanitizers: $tool: $((SECONDS - started)) s"
done
if ((${#failed[@]})); then
    echo "sanitizers: FAILED: ${failed[*]}" >&2
    exit 1
fi
