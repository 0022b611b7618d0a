#!/usr/bin/env bash
# Prints the licences of the crates that are linked into the programs and libraries which `make install` installs.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(nowait-cli nowait-aio nowait-ahead nowait-capi)
sources=("${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/)
host=$(rustc --version --verbose | sed -n 's/^host: //p')

# "name version licence" of each crate that is not one of nowait.
crates=$(cargo tree --locked --edges normal,no-proc-macro --target "$host" --prefix none --format '{p} {l}' \
    "${packages[@]/#/--package=}" |
    sed -n 's/^\([^ ]*\) v\([^ ]*\) \(([^)]*) \)\?\([^(].*\)$/\1 \2 \4/p' | sed 's/ (\*)$//' | sort -u | grep -v '^nowait')

echo "The programs and libraries of nowait contain these crates:"
echo
awk '{ name = $1; version = $2; $1 = $2 = ""; printf "- %s %s:%s\n", name, version, substr($0, 2) }' <<<"$crates"

# Each text once. Most crates have the same ones.
declare -A first
while read -r name version _; do
    for source in "${sources[@]}"; do
        for text in "$source$name-$version"/{LICENSE,LICENCE,COPYING,NOTICE}*; do
            [[ -f $text ]] || continue
            sum=$(sha256sum <"$text")
            printf '\n---- %s %s: %s ----\n\n' "$name" "$version" "${text##*/}"
            if [[ ${first[$sum]-} ]]; then
                echo "The same text as that of ${first[$sum]}."
            else
                first[$sum]="$name $version: ${text##*/}"
                cat "$text"
            fi
        done
    done
done <<<"$crates"
