#!/usr/bin/env bash
# Builds the Debian packages of the commit that is checked out, and checks them with lintian(1).
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/build-deb.sh

Builds the Debian packages of HEAD into target/deb, and fails if lintian(1) finds an error. Changes that are
not committed are not in the packages.
USAGE
}

case ${1:-} in
    "") ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/deb

rm -rf "$out"
mkdir -p "$out/nowait"
git archive HEAD | tar -x -C "$out/nowait"
cd "$out/nowait"
# The program and the library are built where `make build` builds them, so that nothing is built twice.
# -d: the build dependencies of control are programs of debhelper, and Rust, which no package has to provide.
CARGO_TARGET_DIR=$target dpkg-buildpackage --build=binary --no-sign -d
cd "$out"
lintian --fail-on error --display-level ">=warning" ./*.changes
rm -rf "$out/nowait"
ls -l ./*.deb
