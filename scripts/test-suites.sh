#!/usr/bin/env bash
# Runs the test-suites of other programs without and with `nowait run`, and compares the results of each test.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/test-suites.sh [--short] [--mode MODE]... [PROGRAM...]

Fetches Debian's source packages of coreutils, findutils, tar, rsync and git (or of the PROGRAMs among them), builds
them below target/suites, and runs their test-suites without a preload, and in the modes of `nowait run`. Prints
how many tests passed, failed and were skipped. Fails if a test passes without it and not with it. Sources and builds
are kept.

  --mode MODE   ahead, data, keep-cache, learn, learnt (a second run, with the profile of the first one) or aio; all
                without this option
  --short       selected tests of tar, in the modes data, keep-cache and learn: 4 minutes

The suites run as an ordinary user: as the user nobody if this script is started by root. All results are in
target/suites/PROGRAM.without and PROGRAM.MODE, one test a line, and the output in *.log.

The programs have the preload in all tests but some of coreutils: the tests of env and printenv that begin with an empty
environment, and those of rm, cp, df, csplit and ls that set LD_PRELOAD to a library of their own.
USAGE
}

all=(coreutils findutils tar rsync git)
short=
# An ordinary user has no control groups: --keep-cache surveys files.
declare -A words=(
    [ahead]=--ahead [data]=--data [keep-cache]=--keep-cache [learn]=--learn=suite [learnt]=--learn=suite [aio]=--aio
)
modes=()
programs=()
while (($#)); do
    case $1 in
        --short) short=1 ;;
        --mode)
            [[ ${2-} && ${words[$2]-} ]] || { usage >&2; exit 2; }
            modes+=("$2")
            shift
            ;;
        -h | --help) usage; exit 0 ;;
        -*) usage >&2; exit 2 ;;
        *) programs+=("$1") ;;
    esac
    shift
done
if ((${#programs[@]} == 0)); then
    if [[ $short ]]; then programs=(tar); else programs=("${all[@]}"); fi
fi
if ((${#modes[@]} == 0)); then
    if [[ $short ]]; then modes=(data keep-cache learn); else modes=(ahead data keep-cache learn learnt aio); fi
fi
for program in "${programs[@]}"; do
    [[ " ${all[*]} " == *" $program "* ]] || { usage >&2; exit 2; }
done

cd "$(dirname "$0")/.."
scripts/install-deps.sh --suites
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo build --quiet -p nowait-cli -p nowait-ahead -p nowait-aio
suites=$target/suites
mkdir -p "$suites"
cp "$target"/debug/{nowait,libnowait_ahead.so,libnowait_aio.so} "$suites"
scripts/preload-directory.sh "$suites" libnowait_aio.so
as_user=()
if ((EUID == 0)); then
    # A user who may not write to the sources could not build them. 65534 is the user nobody.
    chown 65534:65534 "$suites"
    as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
as_user+=(env HOME="$suites" LC_ALL=C)
cd "$suites"

# apt_get WORD...: apt-get with the source packages of the Debian release that this machine is set up with. The lists
# of the machine stay as they are.
apt_get() {
    local apt=$suites/apt
    if [[ ! -e $apt/sources.list ]]; then
        mkdir -p "$apt"/{lists,cache}/partial
        # shellcheck disable=SC2016 # the format is apt-get's
        apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Label: Debian' |
            sort -u >"$apt/new.list"
        mv "$apt/new.list" "$apt/sources.list"
        apt_get -qq update
    fi
    apt-get -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root "$@"
}

# prepare PROGRAM: its source in the directory PROGRAM, built.
prepare() {
    local program=$1
    [[ -e $program/built ]] && return
    echo "test-suites: building $program"
    rm -rf --one-file-system "$program" "$program".unpacked
    apt_get -qq source --download-only "$program" >"$program.build.log"
    "${as_user[@]}" dpkg-source --no-check --skip-patches -x "$program"_*.dsc "$suites/$program.unpacked" >>"$program.build.log"
    mv "$program.unpacked" "$program"
    (
        cd "$program"
        # The optional libraries are left out.
        case $program in
            rsync)
                "${as_user[@]}" ./configure --disable-md2man --disable-openssl --disable-xxhash --disable-zstd --disable-lz4
                "${as_user[@]}" make -j2
                ;;
            git) "${as_user[@]}" make -j2 "${git_options[@]}" ;;
            *)
                "${as_user[@]}" ./configure --disable-nls
                "${as_user[@]}" make -j2
                ;;
        esac
    ) >>"$program.build.log" 2>&1 || { tail -n 20 "$program.build.log" >&2; exit 1; }
    touch "$program/built"
}
git_options=(NO_CURL=1 NO_OPENSSL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_PYTHON=1 NO_INSTALL_HARDLINKS=1)

# check PROGRAM RUNNER...: runs its suite, without a failure if a test fails.
check() {
    local program=$1
    shift
    cd "$program"
    case $program in
        coreutils)
            find . -name '*.trs' -delete
            "${as_user[@]}" "$@" make -k -j2 check VERBOSE=no
            ;;
        findutils)
            find . -name '*.trs' -delete
            "${as_user[@]}" "$@" make -k -j2 check
            ;;
        tar) "${as_user[@]}" "$@" make -C tests check TESTSUITEFLAGS="-j2 ${short:+-k extract -k sparse}" ;;
        rsync) "${as_user[@]}" "$@" make check ;;
        git)
            rm -rf t/test-results
            # Its target `test` would remove the results.
            # shellcheck disable=SC2046 # each test is a word
            "${as_user[@]}" "$@" make -C t -k -j2 "${git_options[@]}" GIT_TEST_OPTS=--tee $(cd t && echo t[0-9]*.sh)
            ;;
    esac || true
}

# results PROGRAM LOG: one line for each test, its name and its result.
results() {
    local program=$1 log=$2
    case $program in
        coreutils | findutils)
            # automake's results, and those of DejaGnu.
            find "$program" -name '*.trs' | sort | while read -r trs; do
                sed -n "s|^:test-result: \([A-Z]*\).*|${trs%.trs} \1|p" "$trs"
            done
            sed -n 's/^\(PASS\|FAIL\|XFAIL\|XPASS\|UNSUPPORTED\|UNTESTED\): \(.*\), \(.*\)$/\2,\3 \1/p' "$log" | tr -s ' ' | sed 's/^ //'
            ;;
        # autotest's lines: `  1: the name      ok`
        tar) sed -nE 's/^ *([0-9]+): (.*[^ ]) +(ok|skipped|FAILED|expected failure|UNEXPECTED PASS)( .*)?$/\1 \2 \3/p' "$log" |
            sed -E 's/ ok$/ PASS/; s/ skipped$/ SKIP/; s/ FAILED$/ FAIL/; s/ expected failure$/ XFAIL/; s/ UNEXPECTED PASS$/ XPASS/' ;;
        rsync) sed -nE 's/^(PASS|FAIL|SKIP|XFAIL|ERROR) +([^ ]+).*/\2 \1/p' "$log" ;;
        # TAP: `ok 3 - the name`
        git) (
            cd git/t/test-results
            for out in *.out; do
                sed -nE "s/^(not )?ok ([0-9]+)( - | # skip)(.*)/${out%.out} \2 \1\3\4/p" "$out" |
                    sed -E 's/^([^ ]+ [0-9]+) not  - (.*) # TODO.*/\1 XFAIL/; s/^([^ ]+ [0-9]+) .*# skip.*/\1 SKIP/
                        s/^([^ ]+ [0-9]+) not  - .*/\1 FAIL/; s/^([^ ]+ [0-9]+)  - .*/\1 PASS/'
                grep -q '^1\.\.[0-9]' "$out" || echo "${out%.out} whole FAIL"
            done
        ) ;;
    esac | sort -u
}

# count FILE: how many results of each kind.
count() {
    awk '{ count[$NF]++ } END { for (kind in count) printf "%s %d, ", kind, count[kind] }' "$1" | sed 's/, $//'
}

# This test counts the calls of stat(2) of ls under strace. A tracer holds a call as long as a disk does, and after such a call the
# library asks for the number of the current directory.
counts_calls='coreutils/tests/ls/stat-free-symlinks PASS'

worse=0
for program in "${programs[@]}"; do
    prepare "$program"
    rm -rf "$suites/profiles"
    for way in without "${modes[@]}"; do
        runner=()
        if [[ $way != without ]]; then
            runner=(env NOWAIT_LIBRARY_DIR="$suites" XDG_CACHE_HOME="$suites/profiles")
            runner+=("$suites/nowait" run "${words[$way]}" --stats --)
        fi
        started=$SECONDS
        (check "$program" "${runner[@]}") >"$program.$way.log" 2>&1
        results "$program" "$program.$way.log" >"$program.$way"
        [[ -s $program.$way ]] || { echo "test-suites: $program has no results: see $suites/$program.$way.log" >&2; exit 1; }
        echo "$program $way: $(count "$program.$way"); $((SECONDS - started)) s"
        sed -n 's/^nowait: the program called/  it called/p' "$program.$way.log"
        lost=$(comm -23 <(grep ' PASS$' "$program.without") <(grep ' PASS$' "$program.$way") | grep -vxF "$counts_calls" || true)
        if [[ $lost ]]; then
            echo "$program: these tests pass without nowait run, and not with ${words[$way]}:" >&2
            echo "$lost" >&2
            worse=1
        fi
    done
done
exit $worse
