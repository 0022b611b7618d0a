#!/usr/bin/env bash
# Installs the newest versions of the programs that nowait-bench compares with into a directory of its own.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/peers.sh

Installs the newest peers of nowait-bench, which may need newer libraries than this system has, in DIR = CARGO_TARGET_DIR/peers
(default: target/peers):

  DIR/bin/bfs         from the newest Debian, with its own C library and liburing
  DIR/bin/fd, dust, pdu  from crates.io
  DIR/liburing        liburing, built from the newest Debian sources: header files and library, for make bench-capi

nowait-bench runs these programs if DIR/bin is first in PATH. The system itself stays as it is.
USAGE
}

if (($#)); then
    usage
    [[ $1 == --help ]] && exit 0
    exit 2
fi
cd "$(dirname "$0")/.."
peers=$(realpath -m "${CARGO_TARGET_DIR:-target}")/peers
mkdir -p "$peers/bin"

# The package lists of Debian's unstable distribution, from the place that this system's packages are from, beside those of
# this system.
lists=$peers/apt
mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
# shellcheck disable=SC2016 # apt-get expands it
place=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)
key=/usr/share/keyrings/debian-archive-keyring.gpg
printf '%s [signed-by=%s] %s sid main\n' deb "$key" "$place" deb-src "$key" "$place" >"$lists/sources.list"
apt() {
    apt-get -qq -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$lists/lists" \
        -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root "$@"
}
apt update

# bfs needs a newer C library than Debian 12 has.
rm -rf "$peers/bfs" "$lists/deb"
mkdir -p "$peers/bfs" "$lists/deb"
(cd "$lists/deb" && apt download bfs liburing2 libc6 libacl1 libcap2 libonig5 libselinux1 libpcre2-8-0)
for package in "$lists"/deb/*.deb; do
    dpkg-deb -x "$package" "$peers/bfs"
done
libraries=$(dirname "$(find "$peers/bfs" -name 'liburing.so.2' -print -quit)")
cat >"$peers/bin/bfs" <<BFS
#!/bin/sh
exec "$libraries/$(uname -m | sed 's/^/ld-linux-/; s/_/-/').so.2" --library-path "$libraries" "$peers/bfs/usr/bin/bfs" "\$@"
BFS
chmod +x "$peers/bin/bfs"

rm -rf "$lists/liburing"
mkdir -p "$lists/liburing"
(cd "$lists/liburing" && apt source --download-only liburing && tar -xf liburing_*.orig.tar.gz --strip-components 1 &&
    ./configure --prefix="$peers/liburing" >/dev/null && make -s -C src install >/dev/null)

for crate in fd-find du-dust parallel-disk-usage; do
    cargo install --quiet --locked --root "$peers" "$crate"
done

for program in bfs fd dust pdu; do
    "$peers/bin/$program" --version | head -n 1
done
echo "liburing $(sed -n 's/^Version: *//p' "$peers"/liburing/lib/pkgconfig/liburing.pc)"
