#!/usr/bin/env bash
# Installs what `make build` has built.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: [DESTDIR=DIR] scripts/install.sh PREFIX [LIBDIR]

Installs the program with its preload library, the POSIX AIO library, the C library with its header, the unit for systemd, the manual pages, the completions and the licences, also those of other crates, below
DESTDIR/PREFIX. LIBDIR is the directory of libraries (default: PREFIX/lib).
USAGE
}

if [[ $# != 1 && $# != 2 || ${1-} != /* ]]; then
    usage >&2
    exit 2
fi
prefix=$1
libdir=${2:-$prefix/lib}
cd "$(dirname "$0")/.."
built=${CARGO_TARGET_DIR:-target}/release
root=${DESTDIR:-}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

for file in "$built"/{nowait,libnowait_aio.so,libnowait_ahead.so,libnowait_capi.a,THIRD-PARTY-NOTICES}; do
    [[ -e $file ]] || { echo "install: $file is missing: run make build first" >&2; exit 1; }
done

install -D -m 755 "$built/nowait" "$root$prefix/bin/nowait"

install -D -m 644 "$built/libnowait_aio.so" "$root$libdir/libnowait_aio.so.$version"
ln -sf "libnowait_aio.so.$version" "$root$libdir/libnowait_aio.so.0"
ln -sf libnowait_aio.so.0 "$root$libdir/libnowait_aio.so"

# Only `nowait run` loads it.
install -D -m 644 "$built/libnowait_ahead.so" "$root$libdir/nowait/libnowait_ahead.so"
scripts/preload-directory.sh "$root$libdir/nowait" ../libnowait_aio.so.0

linked=$(mktemp -d)
trap 'rm -rf "$linked"' EXIT
# Without symbols of debugging, as cargo builds the others.
LDFLAGS="${LDFLAGS:-} -Wl,--strip-all" scripts/link-c.sh "$built/libnowait_capi.a" "$linked" "$prefix" "$libdir"
install -D -m 644 "$linked/libnowait.so.$version" "$root$libdir/libnowait.so.$version"
ln -sf "libnowait.so.$version" "$root$libdir/libnowait.so.0"
ln -sf libnowait.so.0 "$root$libdir/libnowait.so"
install -D -m 644 "$linked/libnowait.a" "$root$libdir/libnowait.a"
install -D -m 644 -t "$root$libdir/pkgconfig" "$linked"/*.pc
install -D -m 644 crates/nowait-capi/include/nowait.h "$root$prefix/include/nowait.h"
install -D -m 644 -t "$root$prefix/share/man/man3" crates/nowait-capi/man/*.3
# Each function has a page by its name.
for page in crates/nowait-capi/man/*.3; do
    page=$(basename "$page")
    sed -n 's/^\.Nm \(nw_[a-z0-9_]*\).*/\1/p' "crates/nowait-capi/man/$page" | sort -u | while read -r name; do
        [[ $name.3 == "$page" ]] || ln -sf "$page" "$root$prefix/share/man/man3/$name.3"
    done
done

generated() { # NAME DIRECTORY FILE
    install -d "$root$2"
    "$built/nowait" generate "$1" >"$root$2/$3"
    chmod 644 "$root$2/$3"
}
for name in $("$built/nowait" generate); do
    case $name in
        *.1) generated "$name" "$prefix/share/man/man1" "$name" ;;
        nowait.bash) generated "$name" "$prefix/share/bash-completion/completions" nowait ;;
        _nowait) generated "$name" "$prefix/share/zsh/site-functions" _nowait ;;
        nowait.fish) generated "$name" "$prefix/share/fish/vendor_completions.d" nowait.fish ;;
        *) echo "install: no place for $name" >&2; exit 1 ;;
    esac
done
install -D -m 644 -t "$root$prefix/share/man/man7" man/*.7
install -d "$root$prefix/lib/systemd/system"
sed "s|/usr/bin/nowait|$prefix/bin/nowait|" contrib/systemd/nowait-keep@.service \
    >"$root$prefix/lib/systemd/system/nowait-keep@.service"
chmod 644 "$root$prefix/lib/systemd/system/nowait-keep@.service"
install -D -m 644 -t "$root$prefix/share/doc/nowait" LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md

install -D -m 644 -t "$root$prefix/share/doc/nowait" "$built/THIRD-PARTY-NOTICES"

# The dynamic linker finds libraries in /usr/local/lib by its cache.
if [[ -z $root && $EUID == 0 ]] && command -v ldconfig >/dev/null; then
    ldconfig
fi
echo "installed: the program $root$prefix/bin/nowait; libraries, headers and nowait.pc in $root$libdir and $root$prefix/include; manual pages (man nowait) and completions in $root$prefix/share"
