#!/usr/bin/env bash
# Removes what `make install` has installed: the files that it would install now.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: [DESTDIR=DIR] scripts/uninstall.sh PREFIX [LIBDIR]

Removes the files that scripts/install.sh installs with the same arguments, and the directories of nowait alone. Needs what
`make build` has built.
USAGE
}

if [[ $# != 1 && $# != 2 || ${1-} != /* ]]; then
    usage >&2
    exit 2
fi
cd "$(dirname "$0")/.."
list=$(mktemp -d)
trap 'rm -rf "$list"' EXIT
root=${DESTDIR:-}
DESTDIR=$list scripts/install.sh "$@" >/dev/null
removed=0
while IFS= read -r -d '' file; do
    if [[ -e $root$file || -L $root$file ]]; then
        rm -f -- "$root$file"
        removed=$((removed + 1))
    fi
done < <(cd "$list" && find . -not -type d -printf '/%P\0')
# Deepest first. Directories that others use are not empty, or not ours.
while IFS= read -r -d '' directory; do
    case $directory in
        */nowait | */nowait/*) rmdir -- "$root$directory" 2>/dev/null || true ;;
    esac
done < <(cd "$list" && find . -depth -type d -printf '/%P\0')
echo "uninstalled: $removed files below $root$1"
