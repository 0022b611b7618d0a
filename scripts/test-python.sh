#!/usr/bin/env bash
# Builds the Python package, and runs its tests in a virtual environment.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/test-python.sh [--wheel WHEEL] [ARGUMENTS OF PYTEST]

Installs the package into a new environment of the interpreter PYTHON (default: python3), and runs python/tests. Without a wheel the
package is built unoptimised, with the program in CARGO_TARGET_DIR/debug.
USAGE
}

wheel=
case ${1-} in
    --help) usage; exit ;;
    --wheel) wheel=$(realpath "$2"); shift 2 ;;
esac
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"${PYTHON:-python3}" -m venv "$environment"
pip() { "$environment/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }

cargo build --quiet -p slowdisk
export NOWAIT_SLOWDISK=$target/debug/slowdisk
if [[ -n $wheel ]]; then
    pip "$wheel"
    # The first use of a fresh environment, which has no tool for building anything.
    "$environment/bin/nowait" run -- ls / >/dev/null
else
    cargo build --quiet -p nowait-cli -p nowait-ahead -p nowait-aio
    scripts/python-data.sh "$target/debug" python/nowait.data
    pip "maturin>=1.9,<2"
    (cd python && PATH=$environment/bin:$PATH VIRTUAL_ENV=$environment maturin develop --quiet)
fi
pip pytest pytest-asyncio hypothesis mypy "pyright[nodejs]" numpy safetensors uvloop trio aiofiles fsspec zarr pandas pyarrow \
    "dask[dataframe,distributed]"
cd python
"$environment/bin/python" -m pytest -q "$@"
