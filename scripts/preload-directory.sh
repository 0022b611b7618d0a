#!/usr/bin/env bash
# Makes the directory of libraries that `nowait run` names in LD_PRELOAD.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/preload-directory.sh DIR AIO

Makes DIR/preload for DIR/libnowait_ahead.so and for the library AIO, a path relative to DIR. The path in LD_PRELOAD is
DIR/preload/libasan.so/$PLATFORM/NAME, which ld.so(8) expands. So a program that cannot load the library does not try to:

- musl does not expand $PLATFORM. It says nothing about a library that is not there.
- The ld.so(8) of 32-bit programs finds a library without functions. It would print an error about a 64-bit one.
- AddressSanitizer ends a program if a library comes before its own in the order of symbols. It knows its own by the name, with
  libasan.so anywhere in the path. The preloaded libraries have no function that it replaces but they call the next one.
  If the sanitizer is linked statically, it ends a program that has mapped such a path: a link has the name.
USAGE
}

if [[ $# != 2 ]]; then
    usage >&2
    exit 2
fi
dir=$1
aio=$2

# Programs of all users load the libraries.
umask 022
new=$(mktemp -d "$dir/preload.XXXXXX")
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
platforms=$new/platforms
mkdir "$platforms"
ln -s platforms "$new/libasan.so"
# The machine of the ELF header.
case $(od -An -t u2 -j 18 -N 2 "$dir/libnowait_ahead.so" | tr -d ' ') in
    62)
        native=x86_64
        # glibc has these values for some processors of Intel.
        others="haswell xeon_phi"
        mkdir "$platforms/lib32"
        "${AS:-as}" --32 -o "$new/empty.o" /dev/null
        "${LD:-ld}" -m elf_i386 -shared -s -z noexecstack -o "$platforms/lib32/libnowait_ahead.so" "$new/empty.o"
        rm "$new/empty.o"
        chmod 644 "$platforms/lib32/libnowait_ahead.so"
        ln -s libnowait_ahead.so "$platforms/lib32/libnowait_aio.so"
        for platform in i386 i486 i586 i686; do
            ln -s lib32 "$platforms/$platform"
        done
        ;;
    183)
        native=aarch64
        others=
        ;;
    *)
        echo "preload-directory: $dir/libnowait_ahead.so is for another machine" >&2
        exit 1
        ;;
esac
mkdir "$platforms/$native"
ln -s ../../../libnowait_ahead.so "$platforms/$native/libnowait_ahead.so"
ln -s "../../../$aio" "$platforms/$native/libnowait_aio.so"
for platform in $others; do
    ln -s "$native" "$platforms/$platform"
done

# Programs may be running.
if ! diff -r --no-dereference "$new" "$dir/preload" >/dev/null 2>&1; then
    rm -rf "$dir/preload"
    mv -T "$new" "$dir/preload" 2>/dev/null || diff -r --no-dereference "$new" "$dir/preload"
fi
