#!/usr/bin/env bash
# Tests of the Samba module: bytes, clients and servers that end with reads in flight, credentials of threads, smbtorture.
set -euo pipefail
cd "$(dirname "$0")/../.."
project=$PWD
# shellcheck source=contrib/samba/server.sh
source contrib/samba/server.sh

usage() {
    cat <<'USAGE'
usage: contrib/samba/test.sh [--short] [--suite SUITE]

Runs a private smbd on 127.0.0.1 (ports 14461 to 14463) with shares that read through a pool of threads, vfs_io_uring, and
contrib/samba/vfs_nowait.c in several configurations, on ext4 and xfs on disks of 1 ms:

  bytes        random reads and writes of two clients, compared with a model
  edges        reads at the ends of files, of 8 MiB, of locked ranges, streams and FIFOs, of files that shrink, of several
               shares in one process, of an engine that cannot be made
  ends         clients that are killed, smbd that is ended, and smbcontrol reload-config, with reads in flight
  credentials  the engine's threads are root's while a user is impersonated
  torture      smbtorture: a test may fail only if it fails without the module, too

Needs root, samba, smbtorture, nettle-dev, and Python with smbprotocol, which is installed in target/samba/venv.
contrib/samba/build.sh builds the module first, and cargo slowdisk. Results are in target/samba/test.

  --short        without smbtorture, and with fewer operations
  --suite SUITE  the samba and the module in the chroot that contrib/samba/build.sh --suite SUITE has made
USAGE
}

own_namespace contrib/samba/test.sh "$@"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
modules=$target/samba/modules
short=
while (($#)); do
    case $1 in
        --short) short=1 ;;
        --suite) samba_root=$target/samba/${2:?}.root modules=$target/samba/$2; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
dir=$target/samba/test
python=$target/samba/venv/bin/python
"$python" -c 'import smbprotocol' 2>/dev/null || {
    python3 -m venv "$target/samba/venv"
    "$python" -m pip install --quiet smbprotocol
}
cc -O2 -Wall -Wextra -o "$target/samba/load" contrib/samba/bench/load.c -lnettle
rm -rf --one-file-system "$dir"
mkdir -p "$dir"
chmod 755 "$dir"

finish() {
    stop_smbd
    stop_disks
}
trap finish EXIT
failed() {
    echo "test-samba: $*" >&2
    exit 1
}

# On the disk of 200 ms reads are in flight at any moment, however slow the machine is.
for fs in ext4 xfs slow; do
    if [[ $fs == slow ]]; then disk=(--latency 200ms); else disk=(--latency 1ms --fs "$fs"); fi
    start_disk "$dir/$fs" --size 1G "${disk[@]}"
    python3 - "$dir/$fs/cold" <<'PYTHON'
import struct, sys
with open(sys.argv[1], "wb") as file:
    for block in range(128 << 8):
        file.write(struct.pack("<Q", block << 12) * 512)
PYTHON
    cp "$dir/$fs/cold" "$dir/$fs/hot"
    mkdir "$dir/$fs/torture"
    chown -R "$samba_user" "$dir/$fs"
    sync "$dir/$fs/cold" "$dir/$fs/hot"
done

if [[ $samba_root != / ]]; then
    mkdir -p "$samba_root$target"
    mount --rbind "$target" "$samba_root$target"
    mount --bind /proc "$samba_root/proc"
fi

# start NAME PORT [RUNNER...]: an smbd with the shares of the tests.
start() {
    local name=$1 port=$2 fs
    shift 2
    smbd_runner=("${@:-env}")
    mkdir -p "$dir/$name"
    for fs in ext4 xfs slow; do
        share "default-$fs" "$dir/$fs"
        share "io_uring-$fs" "$dir/$fs" "vfs objects = io_uring"
        share "patch-$fs" "$dir/$fs" "vfs objects = default_nowait"
        share "nowait-$fs" "$dir/$fs" "vfs objects = nowait"
        share "strict-$fs" "$dir/$fs" "vfs objects = nowait" "nowait:strict = yes"
        share "threads-$fs" "$dir/$fs" "vfs objects = nowait" "nowait:engine = threads"
        share "few-$fs" "$dir/$fs" "vfs objects = nowait" "nowait:depth = 2" "nowait:workers = 1"
        share "unfit-$fs" "$dir/$fs" "vfs objects = nowait" "nowait:workers = 100000"
    done >"$dir/$name/shares.conf"
    {
        share torture-default "$dir/ext4/torture" "vfs objects = streams_xattr"
        share torture-nowait "$dir/ext4/torture" "vfs objects = streams_xattr nowait"
        share torture-strict "$dir/ext4/torture" "vfs objects = streams_xattr nowait" "nowait:strict = yes"
        share torture-reversed "$dir/ext4/torture" "vfs objects = nowait streams_xattr"
    } >>"$dir/$name/shares.conf"
    SAMBA_LOG_LEVEL='1 vfs:3' start_smbd "$dir/$name" "$port" "$target/capi" "$modules"
    current=$name current_port=$port
}
# stop: ends the smbd. It must end.
stop() {
    local process processes tries=0
    read -ra processes <"/proc/$smbd_pid/task/$smbd_pid/children" || true
    stop_smbd
    for process in "${processes[@]}"; do
        while kill -0 "$process" 2>/dev/null; do
            ((tries++ < 300)) || failed "smbd $current does not end"
            sleep 0.1
        done
    done
}
panics() { cat "$dir/$current"/log.* "$dir/$current/smbd.out" | grep -cE 'INTERNAL ERROR|nw_reap' || true; }
# stop_well: ends the smbd, which must not have failed.
stop_well() {
    stop
    (($(panics) == 0)) || failed "smbd $current has failed: $dir/$current/log.smbd"
}
become_load() { # SHARE OPTION...: the load in place of this shell, so that it can be killed
    local share=$1
    shift
    exec "$target/samba/load" -p "$current_port" -s "$share" -u "$samba_user" -w "$samba_password" "$@"
}
load() (become_load "$@")
evict() { dd of="$1" oflag=nocache conv=notrunc,fdatasync count=0 status=none; }
served_by() { # TEXT: the module's line about its engine
    grep -A1 make_engine "$dir/$current"/log.* | grep -q "$1" || failed "$current: the log has no \"$1\""
}
threads() { # the threads of the engines of all clients: name, effective user, effective group
    local process
    for process in $(<"/proc/$smbd_pid/task/$smbd_pid/children"); do
        awk '/^Name:/ { n = $2 } /^Uid:/ { u = $3 } /^Gid:/ && n ~ /^nowait-/ { print n, u, $3 }' \
            /proc/"$process"/task/*/status 2>/dev/null || true
    done
}
differential() { # SHARE...
    local fs
    for fs in ext4 xfs; do
        "$python" contrib/samba/differential.py "$current_port" "$samba_user" "$samba_password" \
            "$dir/$fs" "$seed" "$operations" "${@/%/-$fs}"
    done
}
seed=${SEED:-$RANDOM}
operations=$([[ $short ]] && echo 100 || echo 600)

edges() { # DIRECTORY SHARE...
    "$python" contrib/samba/edges.py "$current_port" "$samba_user" "$samba_password" "$@"
}

echo "bytes (SEED=$seed)"
start ring 14461
differential default io_uring patch nowait strict threads few
served_by 'io_uring:'
served_by 'threads:'
stop_well
start denied 14462 "$project/contrib/samba/deny-io-uring.py"
differential nowait strict
served_by 'threads:'
! grep -A1 make_engine "$dir/denied"/log.* | grep -q 'io_uring:' || failed 'denied: there is a ring'
stop_well

echo edges
start edges 14461
# The first share that reads has the options of the process's engine.
for shares in "nowait strict threads few" "strict nowait" "threads nowait strict" "few nowait" "unfit nowait threads"; do
    # shellcheck disable=SC2046,SC2086 # several shares
    edges "$dir/ext4" default-ext4 $(printf '%s-ext4 ' $shares)
done
edges "$dir/xfs" default-xfs nowait-xfs strict-xfs threads-xfs
edges "$dir/ext4/torture" torture-{default,nowait,strict,reversed}
grep -q 'nw_engine_create: ' "$dir/edges"/log.* || failed 'the share with unfit options has an engine'
stop_well

echo credentials
start credentials 14461
for share in nowait strict threads; do
    evict "$dir/ext4/cold"
    become_load "$share-ext4" -c cold -N 8 -C 1048576 -t 2 >/dev/null &
    client=$!
    seen=0
    while kill -0 $client 2>/dev/null; do
        while read -r name uid gid; do
            ((uid == 0 && gid == 0)) || failed "$share: the thread $name is of user $uid, group $gid"
            [[ $name != nowait-worker ]] || seen=1
        done < <(threads)
        sleep 0.05
    done
    wait $client || failed "$share: the client has failed"
    ((seen)) || failed "$share: no worker was seen"
done

echo ends
for ((i = 0; i < ($([[ $short ]] && echo 5 || echo 25)); i++)); do
    for share in nowait strict threads few; do
        evict "$dir/ext4/cold"
        become_load "$share-ext4" -c cold -N 150 -t 60 2>/dev/null >&2 &
        doomed=$!
        load "$share-xfs" -n 2 -c cold -N 20 -C 65536 -t 0.4 >>"$dir/beside" || failed "$share: wrong bytes beside a client that is killed"
        smbcontrol --configfile="$dir/$current/smb.conf" smbd reload-config || failed 'reload-config'
        sleep "0.$((RANDOM % 3))"
        kill -9 $doomed
        wait $doomed 2>/dev/null || true
    done
done
# The server ends while reads are in flight.
stop_well
for share in nowait strict threads default; do
    for runner in env "$project/contrib/samba/deny-io-uring.py"; do
        start ends 14461 "$runner"
        evict "$dir/slow/cold"
        become_load "$share-slow" -c cold -N 400 -t 60 >"$dir/client.out" 2>&1 &
        client=$!
        # Once there is an engine, reads are in flight until the client ends.
        until [[ $share == default || $(threads) ]]; do
            kill -0 $client || failed "$share: the client has ended: $(<"$dir/client.out")"
            sleep 0.05
        done
        sleep "0.$((3 + RANDOM % 4))"
        stop_well
        ! wait $client || failed "$share: the client does not notice that the server ends"
        # The buffers of reads in flight are not freed before the reads end.
        [[ $share == default ]] || grep -q 'waiting for its read' "$dir"/ends/log.* ||
            failed "$share: the server has not waited for reads in flight"
        rm -f "$dir"/ends/log.*
    done
done
[[ $short ]] && { echo passed; exit; }

echo torture
suites=(smb2.read smb2.rw smb2.lock smb2.ioctl smb2.credits smb2.compound smb2.compound_find smb2.compound_async
    smb2.durable-open smb2.streams smb2.dir)
# The other tests of smb2.replay take minutes each.
mapfile -t replay < <(smbtorture --list 2>/dev/null | grep -o 'smb2\.replay\.[^ ]*' | grep -v dhv2-pending | cut -d. -f1-3)
torture() { # NAME SHARE [RUNNER]: writes the results, one test a line
    local suite name=$1 share=$2
    start "torture-$name" 14461 "${@:3}"
    for suite in "${suites[@]}" "${replay[@]}"; do
        rm -rf --one-file-system "${dir:?}/ext4/torture"/*
        timeout 120 smbtorture "//127.0.0.1/$share" -p "$current_port" -U "$samba_user%$samba_password" "$suite" \
            >"$dir/torture.log" 2>&1 || true
        sed -nE "s/^(success|failure|error|skip): ([^ ]*).*/${suite} \2 \1/p" "$dir/torture.log"
    done | sort >"$dir/$name.results"
    stop
    # smbd 4.17 itself has an assertion that smb2.durable-open fails.
    seq "$(panics)" | sed 's/.*/panic & failure/' >>"$dir/$name.results"
    echo "$name: $(grep -c 'success$' "$dir/$name.results") passed, $(grep -cE '(failure|error)$' "$dir/$name.results")" \
        "failed, $(grep -c 'skip$' "$dir/$name.results") skipped"
}
torture default torture-default
torture nowait torture-nowait
torture strict torture-strict
torture denied torture-nowait "$project/contrib/samba/deny-io-uring.py"
wrong=0
for name in nowait strict denied; do
    # A result other than success is one without the module, too.
    grep -v 'success$' "$dir/$name.results" | grep -vxFf "$dir/default.results" | sed "s/^/$name: /" && wrong=1
done
((!wrong)) || failed 'smbtorture: only the module makes these fail'
echo passed
