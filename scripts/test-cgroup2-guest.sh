#!/bin/sh
# PID 1 of the guest that scripts/test-cgroup2.sh boots: runs `nowait run --keep-cache` in control groups of
# version 2. Prints "PASSED: what" or "FAILED: what" for each check, and "END" at the end.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/busybox HOME=/root

/bin/busybox mkdir -p /busybox /proc /sys /dev /run /root /tmp /scratch
/bin/busybox --install -s /busybox
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
exec </dev/null >/dev/console 2>&1
for module in virtio_pci virtio_blk; do modprobe "$module" 2>/dev/null; done
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -b /dev/vda ] && break
    sleep 0.5
done
mount -t ext4 /dev/vda /scratch
groups=/sys/fs/cgroup
mount -t cgroup2 none $groups
echo +memory >$groups/cgroup.subtree_control
dmesg -n 1
cd /scratch || poweroff -f

# check WHAT COMMAND...: prints the result of a command.
check() {
    what=$1
    shift
    if "$@"; then echo "PASSED: $what"; else echo "FAILED: $what"; fi
}
# cached FILE: its cached bytes.
cached() { nowait fincore --raw -nb -o RES "$1"; }
cold() { [ "$(cached "$1")" = 0 ]; }
warm() { [ "$(cached "$1")" -ge 16777216 ]; }
no_groups() { ! find $groups -name 'nowait-run-*' | grep .; }
is_empty() { [ -z "$(cat "$1"/cgroup.procs)" ]; }
# arrange: "half" is cached by half, "cold" not at all.
arrange() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    head -c 16777216 half >/dev/null
    before=$(cached half)
}
as_before() { [ "$(cached half)" = "$before" ] && cold cold; }
enter() { echo $$ >"$1/cgroup.procs"; }

for name in half cold; do head -c 33554432 /dev/urandom >$name; done

mkdir $groups/ours
enter $groups/ours
arrange
nowait run --wait --keep-cache -- sh -c 'cat half cold >out; sync; exit 3'
check "the status of the program" [ $? = 3 ]
check "what was cached stays, and the rest goes" as_before
check "what was written goes" cold out
check "no group stays" no_groups

arrange
nowait run --wait --keep-cache -- sh -c 'cat cold >/dev/null; killall -9 nowait; sleep 1000' &
wait $!
left=$(echo $groups/nowait-run-*)
check "the group of a run that was killed stays" [ -d "$left" ]
killall sleep
until is_empty "$left"; do sleep 0.2; done
nowait run --wait --keep-cache -- true
check "the next run removes it" no_groups
check "the next run evicts its pages" as_before

echo 200M >$groups/ours/memory.max
nowait run --wait --keep-cache -- sh -c "ls -d $groups/nowait-run-*" 2>/dev/null
check "a limit is not evaded" [ $? != 0 ]
echo max >$groups/ours/memory.max

# The scope of a session, in a slice that is delegated to its user.
mkdir -p $groups/slice/scope
echo +memory >$groups/slice/cgroup.subtree_control
chown 1000 $groups/slice $groups/slice/cgroup.procs $groups/slice/scope $groups/slice/scope/cgroup.procs
chown 1000 $groups/slice/cgroup.subtree_control half cold
enter $groups/slice/scope
echo "user:x:1000:1000::/scratch:/bin/sh" >>/etc/passwd
arrange
su user -c "nowait run --wait --keep-cache -- cat half cold >/dev/null"
check "the group of a user was delegated" as_before
check "no group of a user stays" no_groups

# systemd ends a unit by its group, so no group is made beside it.
mkdir -p $groups/slice/some.service
enter $groups/slice/some.service
nowait run --wait --keep-cache -- sh -c "ls -d $groups/slice/nowait-run-*" 2>/dev/null
check "no group is made beside a unit" [ $? != 0 ]

echo END
poweroff -f
