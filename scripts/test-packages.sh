#!/usr/bin/env bash
# Installs the Debian packages in a new root, tries what they bring, and removes them without a trace.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/test-packages.sh [PACKAGE.deb...]

Makes a small Debian 12 below target/packages with mmdebstrap(1), which takes one or two minutes and needs root
and Debian's archive. Installs the packages there (default: all of target/deb), tries program, manual pages,
completions, the POSIX AIO library and the C library, and purges the packages. Installs and uninstalls as make does.
Fails if a file stays.
USAGE
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
if (($# == 0)); then
    set -- "$target"/deb/*.deb
fi
[[ -e ${1:-} ]] || { echo "test-packages: no packages in $target/deb: run make deb first" >&2; exit 1; }
((EUID == 0)) || { echo "test-packages: needs root, to make a root directory" >&2; exit 1; }

root=$target/packages
trap 'rm -rf --one-file-system "$root"' EXIT
rm -rf --one-file-system "$root"
mkdir -p "$target"
# The packages of the minimal system, and those that show manual pages and complete words.
mmdebstrap --quiet --mode=root --variant=minbase \
    --dpkgopt='path-include=/usr/share/man/*' \
    --include=man-db,bash-completion,zsh,fish bookworm "$root"

mkdir "$root/packages"
cp "$@" "$root/packages"
cc -O2 -o "$root/packages/aio_read" scripts/packages/aio_read.c -lrt
# Built against the packages' own files, which are not installed here.
for package in "$@"; do
    dpkg-deb -x "$package" "$root/packages/tree"
done
libdir=$(dirname "$(find "$root/packages/tree" -name libnowait.so)")
cc -O2 -o "$root/packages/about" scripts/packages/about.c -I "$root/packages/tree/usr/include" -L "$libdir" -lnowait
rm -r "$root/packages/tree"
cp scripts/packages/try.sh "$root/packages"

# The packages are built from the files that these install.
installed=$target/installed
rm -rf "$installed"
DESTDIR=$installed scripts/install.sh /usr/local
DESTDIR=$installed scripts/uninstall.sh /usr/local
left=$(find "$installed" -not -type d -o -name nowait)
rm -rf "$installed"
[[ ! $left ]] || { echo "test-packages: make uninstall leaves $left" >&2; exit 1; }

# A mount namespace of its own: /proc is gone when the script ends, however it ends.
unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" \
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 bash /packages/try.sh
