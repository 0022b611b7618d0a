#!/usr/bin/env bash
# Checks that the libraries build with the oldest version of each direct dependency that their manifests
# allow. Uses a copy without development dependencies, which require newer versions.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/minimal-versions
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

mkdir "$copy/crates"
for crate in nowait nowait-residency nowait-aio nowait-object-store nowait-serve-dir; do
    mkdir "$copy/crates/$crate"
    cp -r "crates/$crate/src" "$copy/crates/$crate"
    awk '/^\[/ { dev = /^\[(dev-dependencies|\[test\])/ } !dev' "crates/$crate/Cargo.toml" \
        >"$copy/crates/$crate/Cargo.toml"
done
sed -e 's|^members = .*|members = ["crates/nowait", "crates/nowait-residency", "crates/nowait-aio", "crates/nowait-object-store", "crates/nowait-serve-dir"]|' -e '/^exclude/d' -e '/^slowdisk/d' -e '/^test-support/d' \
    Cargo.toml >"$copy/Cargo.toml"

cd "$copy"
# RUSTC_BOOTSTRAP allows the unstable flag. The build uses no other unstable feature.
RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
cargo check --locked --all-features --target-dir "$target"
