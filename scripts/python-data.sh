#!/usr/bin/env bash
# Makes the data of the Python wheel: the program `nowait` and its preload libraries.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/python-data.sh BUILT DATA

Makes the directory DATA of the program and the libraries in BUILT, such as target/release: `scripts` goes to bin/ of an
environment, `data` to its root. A wheel has no symbolic links: `nowait run` adds those of scripts/preload-directory.sh.
USAGE
}

if [[ $# != 2 ]]; then
    usage >&2
    exit 2
fi
built=$(realpath "$1")
data=$(realpath -m "$2")
cd "$(dirname "$0")/.."
for file in nowait libnowait_ahead.so libnowait_aio.so; do
    [[ -e $built/$file ]] || { echo "python-data: $built/$file is missing: run make build first" >&2; exit 1; }
done

new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
cp "$built/libnowait_ahead.so" "$built/libnowait_aio.so" "$new"
scripts/preload-directory.sh "$new" libnowait_aio.so
# Links to the libraries become files, links between directories are left out.
platforms=$data/data/lib/nowait/preload/platforms
rm -rf "$data/scripts" "$data/data/lib" "$data/data/share/man"
mkdir -p "$platforms" "$data/scripts"
install -m 755 "$built/nowait" "$data/scripts/nowait"
for kind in "$new"/preload/platforms/*; do
    [[ -L $kind ]] || cp -rL "$kind" "$platforms"
done
for page in $("$built/nowait" generate); do
    case $page in
        *.1) mkdir -p "$data/data/share/man/man1"; "$built/nowait" generate "$page" >"$data/data/share/man/man1/$page" ;;
    esac
done
