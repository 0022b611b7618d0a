#!/usr/bin/env bash
# Runs `nowait run --keep-cache` in control groups of version 2: on Debian's 6.1 and 6.12 and on the newest kernel of
# Debian unstable, in QEMU. This machine may have those of version 1, which the tests of the program use.
set -euo pipefail

say() { echo "test-cgroup2: $*"; }
die() { echo "test-cgroup2: $*" >&2; exit 1; }

cd "$(dirname "$0")/.."
# shellcheck disable=SC2034 # guest.sh uses it
modules=(virtio_pci virtio_blk crc32c_generic crc32c_intel)
# shellcheck source=scripts/guest.sh
. scripts/guest.sh
trap 'rm -rf "$work" "$sockets"' EXIT

say "building"
cargo build -q --workspace --all-features --bins --lib
make_base scripts/test-cgroup2-guest.sh
install_program "$target/debug/nowait" usr/bin/nowait
"$strip" --strip-debug "$root/usr/bin/nowait"
for kernel in 6.1 6.12 newest; do
    get_kernel "$kernel"
    make_initramfs
    truncate -s 512M "$work/disk"
    mkfs.ext4 -q -F "$work/disk"
    log=$store/cgroup2-$release.log
    # With several processors, QEMU before 8.1 sometimes loses a breakpoint of the kernel; see test-kernels.sh.
    timeout 600 "${qemu_command[@]}" -smp 1 -m 1G \
        -kernel "$store/$release/boot/vmlinuz-$release" -initrd "$work/initramfs" \
        -append "console=$console quiet panic=-1 mitigations=off random.trust_cpu=on" \
        -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" \
        -serial "file:$log" </dev/null || say "QEMU ended with status $?"
    tr -d '\r' <"$log" >"$work/log"
    say "$release: $(grep -c ^PASSED: "$work/log") passed"
    if ! grep -q '^END' "$work/log" || grep -q ^FAILED: "$work/log"; then
        cat "$work/log" >&2
        die "$release: failed; the console is in $log"
    fi
done
