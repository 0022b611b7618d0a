#!/usr/bin/env bash
# Runs all fuzz targets at the same time, each for some seconds. Installs nightly Rust and cargo-fuzz if
# they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'USAGE'
usage: scripts/fuzz.sh [SECONDS] [TARGET...]

Runs the fuzz targets (default: all) for SECONDS each (default: 60). They begin with the inputs in
fuzz/corpus. New inputs are kept in fuzz/target/corpus. A failing input is kept in fuzz/artifacts. To run
the target with this input again:

  cargo +nightly fuzz run TARGET fuzz/artifacts/TARGET/FILE
USAGE
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
esac
seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || { usage >&2; exit 2; }
shift || true
targets=("$@")
if ((${#targets[@]} == 0)); then
    for source in fuzz/fuzz_targets/*.rs; do
        targets+=("$(basename "$source" .rs)")
    done
fi

# In CI (NOWAIT_TEST_ALL=1) a skip is a failure.
missing() {
    if [[ -n ${NOWAIT_TEST_ALL:-} ]]; then
        echo "fuzz: FAILED: $*" >&2
        exit 1
    fi
    echo "skipped: fuzzing, $*" >&2
    exit 0
}

if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal || missing "nightly Rust cannot be installed"
fi
command -v c++ >/dev/null || missing "there is no C++ compiler, which libfuzzer-sys needs (package g++)"
tools=$PWD/fuzz/target/tools
PATH=$PATH:$tools/bin
if ! command -v cargo-fuzz >/dev/null; then
    cargo install --quiet --debug --locked --root "$tools" cargo-fuzz@0.13.2 ||
        missing "cargo-fuzz cannot be installed"
fi

# One build for all targets. The manifest of the targets sets their optimisation.
unset CARGO_TARGET_DIR
# A short run builds the dependencies without optimisation. The build would be most of its time.
if ((seconds < 60)); then
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=0
fi
cargo +nightly fuzz build --debug-assertions

logs=fuzz/target/logs
mkdir -p "$logs"
declare -A running
for target in "${targets[@]}"; do
    found=fuzz/target/corpus/$target
    mkdir -p "$found" "fuzz/corpus/$target"
    # One process for each target. They share the processors.
    cargo +nightly fuzz run --debug-assertions "$target" "$found" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
        >"$logs/$target.log" 2>&1 &
    running[$target]=$!
done
failed=()
for target in "${targets[@]}"; do
    if wait "${running[$target]}"; then
        echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$logs/$target.log") inputs"
    else
        failed+=("$target")
        echo "fuzz: $target: FAILED" >&2
        tail -n 60 "$logs/$target.log" >&2
    fi
done
((${#failed[@]} == 0))
