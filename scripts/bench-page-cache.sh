#!/usr/bin/env bash
# Times `nowait fincore` and `nowait warm` and other programs: whole processes, interleaved.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/bench-page-cache.sh [--rounds N] [--nowait PROGRAM] make|fincore|tiny|warm|small DIR

  make     makes the files for the others below DIR; needs 16 GB temporarily, and 13 GB stay
  fincore  8 GiB in 44 files, all cached: nowait fincore, vmtouch, util-linux fincore
  tiny     10,000 files of up to 6 KB, all cached: the same programs
  warm     4 GiB in 15,727 files of 4 KiB to 1 GiB, cold: nowait warm, vmtouch -t, cat
  small    20,000 files of up to 32 KB, cold, with cold inodes: the same programs

Each round runs every contender once, and each round begins with another contender. For cold runs,
/proc/sys/vm/drop_caches empties the caches. That needs root and slows down other programs of the
machine. The output is the median wall clock time, the median processor time, and the median ratio to
the first contender within a round, with the range (order statistics, at least 95 %) of that median.
USAGE
}

rounds=9
nowait=target/release/nowait
while [[ ${1-} == --* ]]; do
    case $1 in
        --rounds) rounds=$2 && shift 2 ;;
        --nowait) nowait=$2 && shift 2 ;;
        --help) usage && exit ;;
        *) usage >&2 && exit 2 ;;
    esac
done
[[ $# == 2 ]] || { usage >&2; exit 2; }
what=$1
nowait=$(realpath "$nowait")
mkdir -p "$2"
cd "$2"

for program in vmtouch fincore; do
    command -v "$program" >/dev/null || { echo "$program is missing: apt-get install vmtouch util-linux-extra" >&2; exit 1; }
done

# Makes the files, of incompressible bytes.
fill() { # SIZE FILE
    head -c "$1" pattern >"$2"
}

make_files() {
    local i=0 size count n
    head -c 1G /dev/urandom >pattern
    mkdir -p cached
    for spec in "1G 4" "128M 24" "64M 16"; do
        read -r size count <<<"$spec"
        for ((n = 0; n < count; n++)); do fill "$size" "cached/$((i++))"; done
    done
    for spec in "1G 1" "256M 4" "64M 8" "16M 34" "4M 64" "1M 256" "256K 1024" "64K 2048" \
        "16K 4096" "4K 8192"; do
        read -r size count <<<"$spec"
        # Spread over the directories, so that each has large and small files.
        for ((n = 0; n < count; n++)); do
            mkdir -p "mixed/$((i % 100))"
            fill "$size" "mixed/$((i % 100))/$((i++))"
        done
    done
    RANDOM=1
    for ((n = 0; n < 20000; n++)); do
        mkdir -p "small/$((n / 100))"
        fill $((RANDOM + 1)) "small/$((n / 100))/$n"
    done
    for ((n = 0; n < 10000; n++)); do
        mkdir -p "tiny/$((n / 1000))"
        fill $((n * 37 % 6000 + 1)) "tiny/$((n / 1000))/$n"
    done
    rm pattern
    "$nowait" evict --flush -r cached mixed small tiny | tail -n 1
}

cold=no
case $what in
    make) make_files && exit ;;
    fincore)
        find cached -type f -exec cat {} + >/dev/null
        contenders=("nowait fincore -r cached|$nowait fincore -r cached"
            "vmtouch -q cached|vmtouch -q cached"
            "fincore cached/*|fincore cached/*") ;;
    tiny)
        find tiny -type f -exec cat {} + >/dev/null
        contenders=("nowait fincore -r tiny|$nowait fincore -r tiny"
            "vmtouch -q tiny|vmtouch -q tiny"
            "fincore tiny/*/*|fincore tiny/*/*") ;;
    warm | small)
        cold=yes
        tree=$([[ $what == warm ]] && echo mixed || echo small)
        contenders=("nowait warm -r $tree|$nowait warm -r $tree"
            "vmtouch -qt $tree|vmtouch -qt $tree"
            "find $tree -exec cat {} +|find $tree -type f -exec cat {} +") ;;
    *) usage >&2 && exit 2 ;;
esac

# Prints NAME, and the wall clock and processor time in milliseconds, separated by tabs.
run() { # NAME COMMAND
    if [[ $cold == yes ]]; then
        echo 3 >/proc/sys/vm/drop_caches
        sleep 0.2
    fi
    local TIMEFORMAT='%R %U %S' spent
    spent=$({ time bash -c "$2" >/dev/null 2>&1 || true; } 2>&1)
    awk -v name="$1" '{ printf "%s\t%.1f\t%.1f\n", name, $1 * 1000, ($2 + $3) * 1000 }' <<<"$spent"
}

# Runs each contender once without counting it, so that programs and libraries are cached.
for contender in "${contenders[@]}"; do run x "${contender#*|}" >/dev/null; done
for ((round = 0; round < rounds; round++)); do
    for ((k = 0; k < ${#contenders[@]}; k++)); do
        contender=${contenders[(k + round) % ${#contenders[@]}]}
        run "${contender%%|*}" "${contender#*|}"
    done
done | tee "$what.tsv" | awk -F '\t' -v first="${contenders[0]%%|*}" '
    { if (!($1 in n)) names[++count] = $1; n[$1]++; wall[$1, n[$1]] = $2; cpu[$1, n[$1]] = $3 }
    function sort(a, len,   i, j, t) {
        for (i = 2; i <= len; i++)
            for (j = i; j > 1 && a[j - 1] > a[j]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    }
    function median(a, len) { return len % 2 ? a[(len + 1) / 2] : (a[len / 2] + a[len / 2 + 1]) / 2 }
    # The number of ratios that are outside the range at each end.
    function outside(len,   k, tail, choose) {
        choose = 1; tail = 2 / 2 ^ len
        for (k = 0; tail <= 0.05; k++) { choose = choose * (len - k) / (k + 1); tail += 2 * choose / 2 ^ len }
        return k > 0 ? k - 1 : 0
    }
    END {
        for (c = 1; c <= count; c++) {
            name = names[c]; len = n[name]
            for (i = 1; i <= len; i++) { w[i] = wall[name, i]; u[i] = cpu[name, i]; r[i] = wall[name, i] / wall[first, i] }
            sort(w, len); sort(u, len); sort(r, len); k = outside(len)
            printf "%-28s %9.1f ms, processor %9.1f ms; time beside the first: %.2f (%.2f-%.2f)\n",
                name, median(w, len), median(u, len), median(r, len), r[k + 1], r[len - k]
        }
    }'
