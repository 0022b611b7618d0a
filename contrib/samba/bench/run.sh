#!/usr/bin/env bash
# One smbd with six ways to read files, under a load of cached and uncached reads.
set -euo pipefail
cd "$(dirname "$0")/../../.."
# shellcheck source=contrib/samba/server.sh
source contrib/samba/server.sh

usage() {
    cat <<'USAGE'
usage: contrib/samba/bench/run.sh DIR
       contrib/samba/bench/run.sh --table FILE

Compares shares of one smbd that differ in how they read:

  default   a pool of up to 100 threads
  io_uring  Samba's vfs_io_uring
  sync      aio read size = 0: the event loop waits for each read
  patch     vfs_default with contrib/samba/default-nowait.patch
  nowait    contrib/samba/vfs_nowait.c
  threads   the same with nowait:engine = threads, as where io_uring is denied

The client (contrib/samba/bench/load.c) has one connection and one thread, and reads 4 KiB unless a row says another size:

  hits        cached reads alone, unsigned or signed
  beside N    one cached read in flight, while N reads wait for a disk of 5 ms, which serves 64 requests at a time
  cold N      N uncached reads in flight, on that disk or on the one of DIR

Prints medians over the rounds, with the smallest and the largest value, and the ratios of nowait to the others: the
median of the ratios of each round. DIR is for the files: a filesystem on a real disk, with 2 GiB free. Needs root, samba,
nettle-dev, and 3 GiB of memory. contrib/samba/build.sh builds the modules first. Takes 20 minutes.

Each measurement is added to target/samba/bench.tsv when it ends. A run that is stopped prints the table of what it has.
--table prints the table of such a file.

environment: ROUNDS (7), SECONDS_EACH (2), ROWS (a regular expression), TARGET (target)
USAGE
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    --table) exec contrib/samba/bench/table.py "${2:?}" ;;
    "" | -*) usage >&2; exit 2 ;;
esac
dir=$(realpath -m "$1")
own_namespace contrib/samba/bench/run.sh "$dir"
rounds=${ROUNDS:-7} seconds=${SECONDS_EACH:-2} rows=${ROWS:-.}
target=$(realpath -m "${TARGET:-target}")
results=$target/samba/bench.tsv
mkdir -p "$dir" "$target/samba"
dir=$(mktemp -d "$dir/samba-XXXXXX")
chmod 755 "$dir"

finish() {
    stop_smbd
    stop_disks
    rm -rf --one-file-system "$dir"
    [[ ! -s $results ]] || contrib/samba/bench/table.py "$results"
}
trap finish EXIT
: >"$results"

cc -O2 -Wall -Wextra -o "$target/samba/load" contrib/samba/bench/load.c -lnettle
start_disk "$dir/slow" --size 2G --latency 5ms --queue 64
mkdir "$dir/fast"
# Each block begins with its position, repeated.
python3 - "$dir" <<'PYTHON'
import struct, sys
for name, mib in ("fast/hot", 64), ("fast/cold", 1024), ("slow/cold", 1024):
    with open(f"{sys.argv[1]}/{name}", "wb") as file:
        for block in range(mib << 8):
            file.write(struct.pack("<Q", block << 12) * 512)
PYTHON
cp "$dir/fast/hot" "$dir/slow/hot"
chown -R "$samba_user" "$dir/fast" "$dir/slow"
sync "$dir"/{fast,slow}/{hot,cold}

for disk in fast slow; do
    share "default-$disk" "$dir/$disk"
    share "io_uring-$disk" "$dir/$disk" "vfs objects = io_uring"
    share "sync-$disk" "$dir/$disk" "aio read size = 0"
    share "patch-$disk" "$dir/$disk" "vfs objects = default_nowait"
    share "nowait-$disk" "$dir/$disk" "vfs objects = nowait"
    share "threads-$disk" "$dir/$disk" "vfs objects = nowait" "nowait:engine = threads"
done >"$dir/shares.conf"
start_smbd "$dir" 14451 "$target/capi" "$target/samba/modules"

# measure ROW CONTENDER DISK OPTION...
measure() {
    local row=$1 contender=$2 disk=$3 result
    shift 3
    cat "$dir/$disk/hot" >/dev/null
    dd of="$dir/$disk/cold" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    result=$("$target/samba/load" -p 14451 -s "$contender-$disk" -u "$samba_user" -w "$samba_password" -P "$smbd_pid" -t "$seconds" "$@")
    printf '%s\t%s\t%s\n' "$row" "$contender" "$result" >>"$results"
}

# row | disk | options of load | contenders. A synchronous server serves one read at a time: it is only in rows of hits.
all="default io_uring sync patch nowait threads" asynchronous="default io_uring patch nowait threads"
plan=(
    "hits 4 KiB|fast|-n 1|$all"
    "hits 64 KiB|fast|-n 1 -H 65536|$all"
    "hits 4 KiB, signed|fast|-n 1 -S|default io_uring patch nowait"
    "beside 16|slow|-n 1 -N 16|$asynchronous"
    "beside 90|slow|-n 1 -N 90|$asynchronous"
    "beside 120|slow|-n 1 -N 120|$asynchronous"
    "beside 200|slow|-n 1 -N 200|$asynchronous"
    "beside 400|slow|-n 1 -N 400|$asynchronous"
    "cold 32|fast|-N 32|$asynchronous"
    "cold 64, disk of 5 ms|slow|-N 64|$asynchronous"
)
for ((round = 0; round < rounds; round++)); do
    for entry in "${plan[@]}"; do
        IFS='|' read -r row disk options contenders <<<"$entry"
        [[ $row =~ $rows ]] || continue
        read -ra contenders <<<"$contenders"
        for ((i = 0; i < ${#contenders[@]}; i++)); do
            # shellcheck disable=SC2086 # several options
            measure "$row" "${contenders[(round + i) % ${#contenders[@]}]}" "$disk" $options
        done
    done
    echo "round $((round + 1)) of $rounds" >&2
done
