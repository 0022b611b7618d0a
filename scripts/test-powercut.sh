#!/usr/bin/env bash
# Cuts the power of a guest that writes records, and checks that no acknowledged record is lost.
#
# nbdkit serves the guest's disk. Its cache filter holds written data until the guest flushes. QEMU and
# nbdkit are killed together, so data that was not flushed is lost, as in a disk's volatile cache. The host
# then mounts the disk, which replays the filesystem's journal, and compares the records.
# Two controls must lose records: a writer that acknowledges before fsync(2), and a disk that ignores
# flushes.
set -euo pipefail

rounds=50 kernel=6.12
filesystems=(ext4 xfs btrfs)
# shellcheck disable=SC2034 # scripts/guest.sh reads it
modules=(virtio_pci virtio_blk xfs btrfs crc32c_generic crc32c_intel)

usage() {
    cat <<'USAGE'
usage: scripts/test-powercut.sh [--rounds N] [--kernel 6.1|6.12]

Boots a Debian kernel in QEMU N times (default 50). The guest writes records with nowait to ext4, xfs or
btrfs, and is killed at a random time. Fails if an acknowledged record is missing or torn. Needs root for
loop mounts, and nbdkit.
USAGE
}

say() { echo "test-powercut: $*"; }
die() { echo "test-powercut: $*" >&2; exit 1; }

while (($#)); do
    case $1 in
        --rounds) rounds=${2:?--rounds needs a number}; shift ;;
        --kernel) kernel=${2:?--kernel needs a version}; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
[[ $rounds =~ ^[0-9]+$ ]] || die "not a number of rounds: $rounds"

cd "$(dirname "$0")/.."
# shellcheck source=scripts/guest.sh
. scripts/guest.sh
running=()
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    cut_power
    if mountpoint -q "$work/mnt"; then umount "$work/mnt"; fi
    rm -rf "$work" "$sockets"
}
# Kills QEMU and nbdkit with SIGKILL.
cut_power() {
    local process
    for process in "${running[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
    for process in "${running[@]}"; do wait "$process" 2>/dev/null || true; done
    running=()
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
((EUID == 0)) || die "needs root to mount the disk after the power cut"
command -v nbdkit >/dev/null || die "no nbdkit; scripts/install-deps.sh --kernels installs what is needed"
log=$store/powercut.log

# boot FILESYSTEM CACHE EARLY: starts a guest and waits until it acknowledges records.
boot() {
    local attempts=3 tries
    while ((attempts--)); do
        rm -f "$work/disk" "$sockets/disk"
        truncate -s 512M "$work/disk"
        case $1 in
            ext4) mkfs.ext4 -q -F "$work/disk" ;;
            xfs) mkfs.xfs -q -f "$work/disk" ;;
            # mkfs prints its defaults even with -q.
            btrfs) mkfs.btrfs -q -f "$work/disk" >"$work/mkfs" 2>&1 || die "$(cat "$work/mkfs")" ;;
        esac
        : >"$log"
        nbdkit --foreground --unix "$sockets/disk" --filter=cache file "$work/disk" "cache=$2" </dev/null &
        running=($!)
        for ((tries = 0; tries < 100; tries++)); do
            [[ ! -S $sockets/disk ]] || break
            sleep 0.1
        done
        "${qemu_command[@]}" -smp 1 -m 1G \
            -kernel "$store/$release/boot/vmlinuz-$release" -initrd "$work/initramfs" \
            -append "console=$console quiet panic=-1 mitigations=off random.trust_cpu=on filesystem=$1 early=$3" \
            -drive "file=nbd+unix:///?socket=$sockets/disk,format=raw,if=virtio,cache=writeback" \
            -serial "file:$log" </dev/null &
        running+=($!)
        for ((tries = 0; tries < 600; tries++)); do
            if grep -q '^ACK' "$log"; then return; fi
            kill -0 "${running[1]}" 2>/dev/null || break
            sleep 0.2
        done
        # An emulated kernel may panic while it boots (see scripts/test-kernels.sh).
        say "the guest acknowledged nothing; its console ends with: $(tail -n 2 "$log" | tr -d '\r' | tr '\n' ' ')"
        cut_power
    done
    die "the guest does not start; its console is in $log"
}

# cut_round FILESYSTEM CACHE EARLY: one power cut; returns 0 if all acknowledged records are found.
cut_round() {
    local status=0
    boot "$@"
    sleep "$((RANDOM % 4)).$((RANDOM % 10))$((RANDOM % 10))"
    cut_power
    if grep 'POWERCUT-FAILED' "$log"; then die "the writer failed; its console is in $log"; fi
    mkdir -p "$work/mnt"
    mount -o loop "$work/disk" "$work/mnt"
    tr -d '\r' <"$log" >"$work/acknowledged"
    "$powercut" check "$work/mnt" "$work/acknowledged" >"$work/found" 2>&1 || status=$?
    umount "$work/mnt"
    return "$status"
}

say "building"
cargo build -q --release -p powercut -p nowait-aio
powercut=$target/release/powercut
make_base scripts/test-powercut-guest.sh
install_program "$powercut" usr/bin/powercut
install_program "$target/release/libnowait_aio.so" usr/lib/libnowait_aio.so
get_kernel "$kernel"
make_initramfs

records=0
for ((round = 0; round < rounds; round++)); do
    filesystem=${filesystems[round % ${#filesystems[@]}]}
    if ! cut_round "$filesystem" writeback 0; then
        cat "$work/found" >&2
        die "round $((round + 1)), $filesystem: acknowledged records are lost; the console is in $log"
    fi
    found=$(awk '/ records acknowledged$/ { n += $2 + 1 } END { print n + 0 }' "$work/found")
    records=$((records + found))
    say "round $((round + 1)) of $rounds, $filesystem: found all $found acknowledged records of $(wc -l <"$work/found") faces"
done
for control in "writeback 1 a writer that acknowledges before fsync" "unsafe 0 a disk that ignores flushes"; do
    read -r cache early what <<<"$control"
    if cut_round ext4 "$cache" "$early"; then
        die "control: $what loses no records, so this test cannot detect a loss"
    fi
    say "control: $what loses records as expected: $(grep -c 'record' "$work/found")"
done
say "passed: $rounds power cuts, $records acknowledged records"
