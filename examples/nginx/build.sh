#!/usr/bin/env bash
# Builds the nginx module against the sources of Debian's package nginx-dev.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: examples/nginx/build.sh DIR

Builds ngx_http_nowait_module.so in DIR, for the nginx that Debian's package nginx-dev belongs to. pkg-config(1)
must find nowait.pc: set PKG_CONFIG_PATH if libnowait is not installed in a usual place.
USAGE
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    "" | -*) usage >&2; exit 2 ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
sources=/usr/share/nginx/src
[[ -e $sources/configure ]] || { echo "build: $sources is missing: apt-get install nginx-dev" >&2; exit 1; }
pkg-config --exists nowait || { echo "build: pkg-config does not find nowait: set PKG_CONFIG_PATH" >&2; exit 1; }

# The options of Debian's nginx, so that the module fits it. configure writes into its own directory.
rm -rf "$out/src"
cp -r "$sources" "$out/src"
cd "$out/src"
# shellcheck disable=SC1091 # it sets NGX_CONF_FLAGS
source ./conf_flags
bash ./configure "${NGX_CONF_FLAGS[@]}" --with-cc-opt="-O2 -g -Werror" --add-dynamic-module="$here" \
    >"$out/configure.log" 2>&1 || { cat "$out/configure.log" >&2; exit 1; }
make -f objs/Makefile modules >"$out/make.log" 2>&1 || { cat "$out/make.log" >&2; exit 1; }
mv objs/ngx_http_nowait_module.so "$out/"
cd "$out"
rm -rf src
echo "$out/ngx_http_nowait_module.so"
