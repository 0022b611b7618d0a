#!/bin/sh
# PID 1 of the guest that scripts/test-kernels.sh boots, in an initramfs with busybox and a few real tools.
#
# Carries out each run in /tests/runs on a fresh ext4 and powers off. A run is named PROGRAM or
# PROGRAM::MODULE; its file has the arguments of /tests/bin/PROGRAM. If a program needs more than the initramfs has, the
# host's root becomes the guest's. Lines starting with "NOWAIT-KERNEL-"
# are for the script on the host, which also wrote the settings in /tests/config.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/busybox HOME=/root

finish() {
    echo "NOWAIT-KERNEL-TESTS: pass=$pass fail=$fail"
    sync
    poweroff -f
}
pass=0 fail=0
give_up() {
    echo "$1"
    fail=1
    finish
}

# begin: mounts what programs need.
begin() {
    /bin/busybox mkdir -p /busybox /proc /sys /dev /run /root /tmp /scratch
    /bin/busybox --install -s /busybox
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    mount -t devtmpfs dev /dev 2>/dev/null
    mkdir -p /dev/shm /dev/pts
    mount -t tmpfs shm /dev/shm
    mount -t devpts devpts /dev/pts
    ln -sf /proc/self/fd /dev/fd
    exec </dev/null >/dev/console 2>&1

    echo "NOWAIT-KERNEL-UP: $(uname -r)"
    # mount and the kernel load other modules through /sbin/modprobe.
    for module in virtio_pci virtio_blk loop fuse; do
        modprobe "$module" 2>/dev/null
    done
    ip link set lo up

    # The temporary directory must be on a filesystem with a page cache on a block device that may be slow.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        [ -b /dev/vda ] && break
        sleep 0.5
    done
    mount -t ext4 /dev/vda /scratch || give_up "no scratch disk"
    mkdir -p /scratch/tmp /scratch/cargo-tmp /var/tmp
    chmod 1777 /scratch/tmp
    mount --bind /scratch/tmp /tmp
    mount --bind /scratch/tmp /var/tmp
}

# enter_machine: makes the host's root the root of this process, with writes to the scratch disk.
enter_machine() {
    root=/machine
    mkdir -p /shared $root /scratch/upper /scratch/work
    modprobe virtiofs 2>/dev/null
    modprobe overlay 2>/dev/null
    mount -t virtiofs -o ro machine /shared &&
        mount -t overlay -o lowerdir=/shared,upperdir=/scratch/upper,workdir=/scratch/work overlay $root || return 1
    mkdir -p $root/scratch $root/tests $root/busybox
    for place in proc sys dev scratch tests busybox; do mount --rbind /$place $root/$place || return 1; done
    mount -t tmpfs run $root/run
    mount --rbind /tmp $root/tmp
    # The kernel calls modprobe, which finds the modules of this kernel.
    mkdir -p $root/lib/modules
    mount --rbind /lib/modules $root/lib/modules
    # Not chroot(2) alone: a process in a chroot cannot make user namespaces.
    cd $root && mount --move . /
}

# With an argument, this script has entered the host's root.
[ $# = 1 ] || begin
per_run='' per_face='' cargo_tmp='' cases='' polled_device='' share='' host_path=''
# shellcheck source=/dev/null
. /tests/config # sets these
if [ "$share" ] && [ $# = 0 ]; then
    enter_machine || give_up "the host's root cannot be mounted"
    exec chroot . /bin/sh /tests/init inside
fi
[ -z "$share" ] || export PATH="$host_path:/busybox"
# Integration tests have this path compiled in (CARGO_TARGET_TMPDIR).
mkdir -p "$cargo_tmp"
mount --bind /scratch/cargo-tmp "$cargo_tmp"

# Messages from the kernel would cut test output in two; they are shown at the end.
dmesg -n 1
unset NOWAIT_TEST_ALL
export NOWAIT_TEST_KERNEL=1 RUST_BACKTRACE=1 PROPTEST_CASES="$cases"
export NOWAIT_POLLED_DEVICE="$polled_device"
cd /scratch || finish

# run_once RUN LOG ARGUMENTS: sets p, f, seconds and note.
run_once() {
    start=$(cut -d. -f1 /proc/uptime)
    limit=$per_run
    case $1 in *.*) limit=$per_face ;; esac
    {
        # One test at a time: under emulation a second one would only disturb the first.
        # shellcheck disable=SC2086 # the arguments are a list of words
        timeout -s KILL "$limit" "/tests/bin/${1%%::*}" --test-threads=1 --show-output $3
        rc=$?
        # Processes of a killed test would keep the pipe open: kill all except this one and PID 1.
        # A program may have been killed because memory was short.
        [ $rc -lt 128 ] || { dmesg | grep -i 'out of memory' | tail -n 1; sleep 1; kill -9 -1; }
        echo $rc >"$2.rc"
    } 2>&1 | tee "$2"
    rc=$(cat "$2.rc")
    seconds=$(($(cut -d. -f1 /proc/uptime) - start))

    # "test result: ok. 3 passed; 0 failed; 1 ignored; ..."
    # shellcheck disable=SC2046 # two words are wanted
    set -- $(sed -n 's/^test result: [^.]*\. \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$2" | tail -n 1)
    p=${1:-0} f=${2:-0} note=
    if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1
        note=" (ended with status $rc)"
        [ "$seconds" -lt "$limit" ] || note=" (still running after $limit s: killed)"
    fi
}

# failed LOG: prints the names of failed tests.
failed() { sed -nE 's/^test (.*) \.\.\. FAILED.*/\1/p' "$1"; }

# said RUN LOG WORD: prints the names of failed tests for the summary on the host.
said() {
    failed "$2" | sed "s/^/NOWAIT-KERNEL-$3: ${1%%::*}::/"
    [ "$(failed "$2")" ] || echo "NOWAIT-KERNEL-$3: $1$note"
}

for run in /tests/runs/*; do
    name=${run##*/}
    log=/run/$name.log
    echo "NOWAIT-KERNEL-RUN: $name"
    run_once "$name" "$log" "$(cat "$run")"
    if [ "$f" -gt 0 ]; then
        # A test may fail because emulation is slow, so it is run again. Both failures are reported.
        said "$name" "$log" ONCE
        again=$(failed "$log" | tr '\n' ' ')
        # If a test did not end, all are run again.
        [ -z "$again" ] || pass=$((pass + p))
        run_once "$name" "$log" "${again:+--exact }${again:-$(cat "$run")}"
        [ "$f" -eq 0 ] || said "$name" "$log" FAILED
    fi
    pass=$((pass + p)) fail=$((fail + f))
    echo "NOWAIT-KERNEL-RESULT: $name pass=$p fail=$f seconds=$seconds$note"
done

dmesg -r | grep -E '^<[0-3]>|WARNING:|BUG:|blocked for more' | sed 's/^/NOWAIT-KERNEL-DMESG: /'
finish
