#!/usr/bin/env bash
# Runs each fuzz target for some seconds, all at the same time. Needs nightly Rust and cargo-fuzz, and
# installs what is missing of them.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'USAGE'
usage: scripts/fuzz.sh [SECONDS] [TARGET...]

Runs the fuzz targets (all, if none is named) for so many seconds each (60 if not said), beginning with
the inputs in fuzz/corpus. What they find on the way stays in fuzz/target/corpus; an input that fails
is kept in fuzz/artifacts, and its target is run with it again by

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
((${#targets[@]})) || targets=(snapshot dirents proc aiocb)

# Where CI runs, what can't be run is a failure.
missing() {
    echo "skipped: fuzzing, $*" >&2
    [[ -z ${NOWAIT_TEST_ALL:-} ]]
    exit
}

if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal || missing "nightly Rust can't be installed"
fi
tools=$PWD/fuzz/target/tools
PATH=$PATH:$tools/bin
if ! command -v cargo-fuzz >/dev/null; then
    cargo install --quiet --locked --root "$tools" cargo-fuzz@0.13.2 ||
        missing "cargo-fuzz can't be installed"
fi

# The targets bring their own optimisation; one build for all of them.
unset CARGO_TARGET_DIR
cargo +nightly fuzz build --debug-assertions

logs=fuzz/target/logs
mkdir -p "$logs"
declare -A running
for target in "${targets[@]}"; do
    found=fuzz/target/corpus/$target
    mkdir -p "$found" "fuzz/corpus/$target"
    # One process a target: they share the processors.
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
