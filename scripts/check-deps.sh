#!/usr/bin/env bash
# Checks the dependencies of the workspace: licences, sources, and wildcard versions.
# It does the checks of cargo-deny that are possible offline. Building cargo-deny takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
    "") ;;
    *) echo "usage: scripts/check-deps.sh" >&2; exit 2 ;;
esac

allowed=$(sed -n '/^allow = \[/,/^\]/s/^ *"\(.*\)",$/\1/p' deny.toml | jq -Rn '[inputs]')
[[ $allowed != "[]" ]] || { echo "check-deps: no licences in deny.toml" >&2; exit 1; }

# Crates with a licence of their own that is allowed: exceptions in deny.toml, one a line.
exceptions=$(sed -n 's/^ *{ allow = .*, crate = "\(.*\)" },$/\1/p' deny.toml | jq -Rn '[inputs]')

# Crates for other platforms are not checked, because they are not built.
wrong=$(cargo metadata --format-version 1 --locked --all-features \
    --filter-platform x86_64-unknown-linux-gnu |
    jq -r --argjson allowed "$allowed" --argjson exceptions "$exceptions" '
        # "(A OR B) AND C": one licence of each part must be allowed. Some crates write A/B.
        def is_allowed:
            gsub(" ?/ ?"; " OR ") | split(" AND ")
            | all(.[]; ltrimstr("(") | rtrimstr(")") | split(" OR ") | any(.[]; IN($allowed[])));
        (.resolve.nodes | map(.id)) as $built
        | .packages[] | select(IN(.id; $built[]))
        | (.name + " " + .version) as $crate
        | (select(.source != null and (.license // "" | is_allowed | not) and (IN(.name; $exceptions[]) | not))
            | "\($crate): the licence is \(.license // "missing")"),
          (select(.source != null
                and .source != "registry+https://github.com/rust-lang/crates.io-index")
            | "\($crate): the source is \(.source)"),
          (select(.source == null) | .dependencies[]
            | select(.req == "*" and .path == null)
            | "\($crate): takes any version of \(.name)")')
if [[ -n $wrong ]]; then
    echo "$wrong" >&2
    exit 1
fi
