#!/usr/bin/env bash
# Links libnowait.so from the static library, and writes the files for pkg-config.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/link-c.sh ARCHIVE DIR [PREFIX [LIBDIR]]

Makes of ARCHIVE (libnowait_capi.a, as cargo has built it), in DIR:

  libnowait.so.VERSION  the shared library, with versioned symbols, and the links
                        libnowait.so.0 and libnowait.so
  libnowait.a           the static library
  nowait.pc             for pkg-config, for an installation in PREFIX (default: /usr/local)
                        with libraries in LIBDIR (default: PREFIX/lib)
  nowait-static.pc      the same for the static library

CC is the C compiler (default: cc). It is that of the architecture of ARCHIVE. LDFLAGS has further options
of the linker.
USAGE
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
esac
(($# >= 2 && $# <= 4)) || { usage >&2; exit 2; }
archive=$1 out=$2 prefix=${3:-/usr/local}
libdir=${4:-$prefix/lib}
root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)
# The libraries that Rust's standard library needs: rustc --print native-static-libs.
libs=(-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc)

read -ra ldflags <<<"${LDFLAGS:-}"

mkdir -p "$out"
# cc and not rustc: for a cdylib rustc has a version script of its own, which leaves the symbols unversioned.
# -z nodelete: dlclose(3) must not unmap the library while its threads run.
"${CC:-cc}" -shared -o "$out/libnowait.so.$version" \
    -Wl,-soname,libnowait.so.0 \
    -Wl,--version-script="$root/crates/nowait-capi/libnowait.map" \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--gc-sections -Wl,--as-needed -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro \
    "${libs[@]}" "${ldflags[@]}"
ln -sf "libnowait.so.$version" "$out/libnowait.so.0"
ln -sf libnowait.so.0 "$out/libnowait.so"
install -m 644 "$archive" "$out/libnowait.a"

# write_pc NAME WORD...: the file for pkg-config whose Libs are these words.
write_pc() {
    cat >"$out/$1.pc" <<PC
prefix=$prefix
libdir=$libdir
includedir=\${prefix}/include

Name: $1
Description: File I/O that does not block the caller
URL: $(sed -n 's/^repository = "\(.*\)"/\1/p' "$root/Cargo.toml")
Version: $version
Libs: -L\${libdir} ${*:2}
Cflags: -I\${includedir}
PC
}
write_pc nowait -lnowait
# The linker prefers libnowait.so to the static library.
write_pc nowait-static -l:libnowait.a "${libs[@]}"
