#!/bin/sh
# PID 1 of the guest that scripts/test-powercut.sh kills: writes records until the power is cut.
#
# Lines that start with "POWERCUT-" and "ACK" are for the host.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/busybox HOME=/root

/bin/busybox mkdir -p /busybox /proc /sys /dev /run /root /tmp /disk
/bin/busybox --install -s /busybox
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
ln -sf /proc/self/fd /dev/fd
exec </dev/null >/dev/console 2>&1
dmesg -n 1

# The host passes filesystem= and early= on the kernel's command line.
filesystem='' early=''
# shellcheck disable=SC2013 # split at words
for word in $(cat /proc/cmdline); do
    case $word in
        filesystem=*) filesystem=${word#*=} ;;
        early=1) early=--early ;;
    esac
done
for module in virtio_pci virtio_blk "$filesystem"; do
    modprobe "$module" 2>/dev/null
done
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -b /dev/vda ] && break
    sleep 0.5
done
mount -t "$filesystem" /dev/vda /disk || echo "POWERCUT-FAILED: no disk"

# A writer ends only if a write fails.
# shellcheck disable=SC2086 # an empty option is none
{
    powercut write /disk --faces future,threads,dsync,blocking,local,tokio $early ||
        echo "POWERCUT-FAILED: a write failed"
} &
# shellcheck disable=SC2086
{
    LD_PRELOAD=/usr/lib/libnowait_aio.so powercut write /disk --faces aio-fsync,aio-dsync $early ||
        echo "POWERCUT-FAILED: a write failed"
} &
wait
sleep 1000
