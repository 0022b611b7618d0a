#!/usr/bin/env bash
# One smbd with six ways to read files, under a load of cached and uncached reads.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: bench/samba/run.sh DIR

Compares shares of one smbd that differ in how they read:

  default   a pool of up to 100 threads
  io_uring  Samba's vfs_io_uring
  sync      aio read size = 0: the event loop waits for each read
  patch     vfs_default with contrib/samba/default-nowait.patch
  nowait    contrib/samba/vfs_nowait.c
  threads   the same with nowait:engine = threads, as where io_uring is denied

The client (bench/samba/load.c) has one connection and one thread, and reads 4 KiB unless a row says another size:

  hits        cached reads alone, with 1 or 16 in flight, unsigned or signed
  beside N    one cached read in flight, while N reads wait for a disk of 5 ms, which serves 64 requests at a time
  cold N      N uncached reads in flight, on that disk or on the one of DIR

Prints medians over the rounds, with the smallest and the largest value, and the ratios of nowait to the others: the
median of the ratios of each round. DIR is for the files: a filesystem on a real disk, with 2 GiB free. Needs root, samba,
nettle-dev, and 3 GiB of memory. scripts/build-samba.sh builds the modules first.

environment: ROUNDS (7), SECONDS_EACH (1.5), ROWS (a regular expression), TARGET (target)
USAGE
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    "" | -*) usage >&2; exit 2 ;;
esac
rounds=${ROUNDS:-7} seconds=${SECONDS_EACH:-1.5} rows=${ROWS:-.}
project=$(cd "$(dirname "$0")/../.." && pwd)
target=$(realpath -m "${TARGET:-$project/target}")
mkdir -p "$1"
dir=$(mktemp -d "$(cd "$1" && pwd)/samba-XXXXXX")
chmod 755 "$dir"
# shellcheck source=contrib/samba/server.sh
source "$project/contrib/samba/server.sh"

slowdisk=''
finish() {
    stop_smbd
    if [[ $slowdisk ]]; then
        kill "$slowdisk"
        wait "$slowdisk" || true
    fi
    rm -rf --one-file-system "$dir"
}
trap finish EXIT

mkdir -p "$target/samba" "$dir/fast" "$dir/slow"
cc -O2 -Wall -Wextra -o "$target/samba/load" "$project/bench/samba/load.c" -lnettle
"$target/release/slowdisk" --size 2G --latency 5ms --queue 64 "$dir/slow" >"$dir/slowdisk.out" &
slowdisk=$!
while ! mountpoint -q "$dir/slow"; do
    kill -0 $slowdisk || { cat "$dir/slowdisk.out" >&2; exit 1; }
    sleep 0.1
done
# Each block begins with its position, repeated.
python3 - "$dir" <<'PYTHON'
import struct, sys
for name, mib in ("fast/hot", 64), ("fast/cold", 1024), ("slow/cold", 1024):
    with open(f"{sys.argv[1]}/{name}", "wb") as file:
        for block in range(mib << 8):
            file.write(struct.pack("<Q", block << 12) * 512)
PYTHON
chown -R "$samba_user" "$dir/fast" "$dir/slow"
sync "$dir"/{fast/hot,fast/cold,slow/cold}

contenders=(default io_uring sync patch nowait threads)
{
    for disk in fast slow; do
        share "default-$disk" "$dir/$disk"
        share "io_uring-$disk" "$dir/$disk" "vfs objects = io_uring"
        share "sync-$disk" "$dir/$disk" "aio read size = 0"
        share "patch-$disk" "$dir/$disk" "vfs objects = default_nowait"
        share "nowait-$disk" "$dir/$disk" "vfs objects = nowait"
        share "threads-$disk" "$dir/$disk" "vfs objects = nowait" "nowait:engine = threads"
    done
} >"$dir/shares.conf"
cp "$dir/fast/hot" "$dir/slow/hot"
sync "$dir/slow/hot"
start_smbd "$dir" 14451 "$target/capi" "$target/samba/modules"

# measure ROW CONTENDER DISK OPTION...
measure() {
    local row=$1 contender=$2 disk=$3
    shift 3
    cat "$dir/$disk/hot" >/dev/null
    dd of="$dir/$disk/cold" oflag=nocache conv=notrunc,fdatasync count=0 status=none
    printf '%s\t%s\t%s\n' "$row" "$contender" \
        "$("$target/samba/load" -p 14451 -s "$contender-$disk" -u "$samba_user" -w "$samba_password" -P "$smbd_pid" -t "$seconds" "$@")" \
        >>"$dir/results"
}

plan=(
    "hits 4 KiB|fast|-n 1"
    "hits 64 KiB|fast|-n 1 -H 65536"
    "hits 1 MiB|fast|-n 1 -H 1048576"
    "hits 4 KiB, 16 in flight|fast|-n 16"
    "hits 4 KiB, signed|fast|-n 1 -S"
    "beside 16|slow|-n 1 -N 16"
    "beside 64|slow|-n 1 -N 64"
    "beside 90|slow|-n 1 -N 90"
    "beside 120|slow|-n 1 -N 120"
    "beside 200|slow|-n 1 -N 200"
    "beside 400|slow|-n 1 -N 400"
    "cold 32|fast|-N 32"
    "cold 32, 64 KiB|fast|-N 32 -C 65536"
    "cold 8, 1 MiB|fast|-N 8 -C 1048576"
    "cold 64, disk of 5 ms|slow|-N 64"
)
for ((round = 0; round < rounds; round++)); do
    for entry in "${plan[@]}"; do
        IFS='|' read -r row disk options <<<"$entry"
        [[ $row =~ $rows ]] || continue
        for ((i = 0; i < ${#contenders[@]}; i++)); do
            contender=${contenders[(round + i) % ${#contenders[@]}]}
            # A synchronous server serves one cold read at a time.
            [[ $contender == sync && $row != hits* ]] && continue
            # shellcheck disable=SC2086 # several options
            measure "$row" "$contender" "$disk" $options
        done
    done
    echo "round $((round + 1)) of $rounds" >&2
done

python3 - "$dir/results" <<'PYTHON'
import statistics, sys
order = ["default", "io_uring", "sync", "patch", "nowait", "threads"]
values = {}  # (row, measure) -> contender -> values of the rounds
for line in open(sys.argv[1]):
    row, contender, result = line.rstrip("\n").split("\t")
    result = dict(pair.split("=") for pair in result.split())
    assert result["wrong"] == "0", line
    if row.startswith("cold"):
        names = "cold_per_s", "cpu_us"
    elif row.startswith("beside"):
        names = "p50_us", "p99_us", "hits_per_s", "cold_per_s"
    else:
        names = "p50_us", "p99_us", "hits_per_s", "cpu_us"
    for name in names:
        values.setdefault((row, name), {}).setdefault(contender, []).append(float(result[name]))
print(f"{'':38}" + "".join(f"{c:>22}" for c in order))
for (row, name), of in values.items():
    cells = [f"{statistics.median(of[c]):g} ({min(of[c]):g}-{max(of[c]):g})" if c in of else "-" for c in order]
    print(f"{row + ', ' + name:38}" + "".join(f"{cell:>22}" for cell in cells))
    ratios = []
    for c in order:
        if c in of and c != "nowait" and len(of[c]) == len(of["nowait"]):
            pairs = [a / b for a, b in zip(of["nowait"], of[c]) if b]
            ratios.append(f"{statistics.median(pairs):.2f} ({min(pairs):.2f}-{max(pairs):.2f})" if pairs else "-")
        else:
            ratios.append("")
    print(f"{'    nowait / it':38}" + "".join(f"{cell:>22}" for cell in ratios))
PYTHON
