#!/usr/bin/env bash
# Runs the tests of the library, of the preload libraries and of the C library on other kernels than this machine's:
# Debian's 6.1 and 6.12, and the newest one of Debian unstable, in QEMU.
#
# Each kernel boots with an initramfs that holds the test programs, the libraries and tools they need,
# and scripts/test-kernels-guest.sh as PID 1. The host reads the results from the serial console. The
# guest has a disk, and an NVMe drive whose queues can be polled.
# A test program is run once for each of its modules, so that each run has its own time limit.
# QEMU emulates the processor (no KVM). It runs on any machine, about ten times slower.
#
# The tests of crate nowait need a few programs, which are in the initramfs. The other ones ("faces") need a compiler,
# the source tree and many programs. For them the guest's root is this machine's (virtiofs), below an overlayfs that
# takes what they write. That needs root.
set -euo pipefail

kernels=(6.1 6.12 newest)
# The other crates whose tests run, and their test programs, or modules of them.
face_crates=(nowait-cli nowait-aio nowait-capi nowait-residency)
faces=(nowait-cli.run nowait-cli.verbs::doctor nowait-aio.drop_in nowait-capi.capi nowait-residency.truth)
# Test programs, and modules of them, that are not run: they need the source tree, or cargo.
never=(tidy nowait-capi.capi::header)
# With --short: these test programs or modules of them ("nowait": the unit tests).
short_tests=(nowait read::bytes read::cached_read read::strict read::overlay read::other_uid read::hit_path
    read::provenance read::residency read::residency_calls read::direct read::erofs engine::contract
    engine::dropped_future engine::cancel engine::deadline ring::polled)
# With --short: tests that are run on 6.1 and not on 6.12. They take minutes.
short_without_6_12=(read::strict read::other_uid read::residency_calls read::hit_path)
# With --short: those on the newest kernel.
short_newest=(read::cached_read read::erofs engine::contract ring::restricted mapping::process)

# Programs that tests call. A program that this machine lacks is missing in the guest; its tests then skip.
tools=(debugfs tune2fs mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.erofs mount umount losetup fusermount3 setfattr getfattr chattr)
# The modules that the guest may load. Their dependencies are added.
modules=(virtio_pci virtio_blk loop fuse virtiofs overlay xfs btrfs erofs squashfs nfsd nfsv4 null_blk nvme crc32c_generic
    crc32c_intel)

usage() {
    cat <<'USAGE'
usage: scripts/test-kernels.sh [--short] [--arch amd64|arm64] [--kernel 6.1|6.12|newest]
                               [--test NAME[::MODULE]]... [--bins FILE...] [--list] [--] [FILTER...]

Boots Debian's 6.1 and 6.12 kernels, and the newest kernel of Debian unstable, in QEMU and runs the tests of
the library (crate nowait), of nowait run and the preload libraries, and of the C library there.
Kernels are fetched with apt-get and kept in target/kernels/, as are the console logs. A kernel gets at most
6 hours, and with --short 30 minutes on amd64.

  --short       run selected tests of the library, fewer on the newest kernel
  --arch ARCH   the processor (default amd64); arm64 needs cargo's target aarch64-unknown-linux-gnu
  --kernel V    only this kernel, or "newest": the newest of Debian unstable; may be repeated
  --test NAME   only the test program NAME (tests/NAME/main.rs, tests/NAME.rs, or "nowait": the unit
                tests; CRATE.NAME for another crate), or with ::MODULE only that module of it; may be repeated
  --bins FILE.. run these executables, up to "--", instead of building the tests
  --list        print the selected runs and their arguments, and do not boot
  FILTER        only tests whose name contains FILTER
USAGE
}

say() { echo "test-kernels: $*"; }
die() { echo "test-kernels: $*" >&2; exit 1; }

arch=amd64 short='' list='' wanted_kernels=() wanted_tests=() bins=() filters=()
while (($#)); do
    case $1 in
        --short) short=1 ;;
        --list) list=1 ;;
        --arch) arch=${2:?--arch needs a name}; shift ;;
        --kernel) wanted_kernels+=("${2:?--kernel needs a version}"); shift ;;
        --test) wanted_tests+=("${2:?--test needs a name}"); shift ;;
        --bins)
            while (($# > 1)) && [[ $2 != -* ]]; do bins+=("$(realpath -e -- "$2")"); shift; done
            ((${#bins[@]})) || die "--bins needs files"
            ;;
        -h | --help) usage; exit 0 ;;
        --) shift; filters+=("$@"); break ;;
        -*) usage >&2; exit 2 ;;
        *) filters+=("$1") ;;
    esac
    shift
done
if ((${#wanted_kernels[@]})); then kernels=("${wanted_kernels[@]}"); fi
for kernel in "${kernels[@]}"; do
    [[ $kernel =~ ^([0-9]+\.[0-9]+|newest)$ ]] || die "not a kernel version like 6.1: $kernel"
done
[[ $arch == amd64 || $arch == arm64 ]] || die "--arch is amd64 or arm64, not $arch"
# Property tests try this many cases of each property; emulation is slow.
kernel_limit=21600 program_limit=600 face_limit=7200 cases=40 short_selection=''
if [[ $short || ${#bins[@]} -gt 0 ]]; then kernel_limit=1800 cases=4; fi
if [[ $short && ${#wanted_tests[@]} -eq 0 ]]; then
    short_selection=1
    wanted_tests=("${short_tests[@]}" "${short_newest[@]}")
fi
# QEMU takes more than twice as long for arm64.
if [[ $arch == arm64 ]]; then kernel_limit=$((kernel_limit * 3)); fi

cd "$(dirname "$0")/.."
# shellcheck source=scripts/guest.sh
. scripts/guest.sh
qemu='' server='' share=''
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    local process
    for process in $qemu $server; do kill "$process" 2>/dev/null || true; wait "$process" 2>/dev/null || true; done
    rm -rf "$work" "$sockets"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- what goes into the guest ----------------------------------------------------------------------

# The directory that cargo compiles into integration tests (CARGO_TARGET_TMPDIR).
tests_tmp=$target/tmp
if [[ $arch == arm64 ]]; then tests_tmp=$target/aarch64-unknown-linux-gnu/tmp; fi

# Prints "name path" of each test program of crate nowait, and "crate.name path" of the faces. Built as `make test`
# does, which often has built them.
build_tests() {
    local options=(--workspace) crates
    crates=$(jq -nc '$ARGS.positional' --args nowait "${face_crates[@]}")
    if [[ $arch == arm64 ]]; then
        options=(-p nowait --target aarch64-unknown-linux-gnu)
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    fi
    cargo test "${options[@]}" --all-features --tests --no-run --message-format=json-render-diagnostics |
        jq -r --argjson crates "$crates" \
            'select(.reason == "compiler-artifact" and .profile.test and .executable)
             | (.manifest_path | split("/")[-2]) as $crate | select($crates | index($crate))
             | "\(if $crate == "nowait" then "" else $crate + "." end)\(.target.name) \(.executable)"'
}

# contains WORD LIST...
contains() {
    local word=$1 other
    shift
    for other; do [[ $word != "$other" ]] || return 0; done
    return 1
}

# selected NAME: whether --test or --short selects a program, or a module of it.
selected() {
    ((${#wanted_tests[@]} == 0)) || contains "$1" "${wanted_tests[@]}" || contains "${1%%::*}" "${wanted_tests[@]}"
}

# tests_of PROGRAM [FILTER...]: prints the names of its tests.
tests_of() { "${run_here[@]}" "$1" --list --format terse "${@:2}" | sed -n 's/: test$//p'; }

# is_face NAME: true for a program of another crate.
is_face() { [[ $1 == *.* && ${#bins[@]} -eq 0 ]]; }

# plan_runs NAME PROGRAM: writes $work/runs/RUN for each run of a program, with the arguments of the
# run, and sets "planned" to their number. A run is a module of a program. The unit tests, and a program
# without modules, are one run.
plan_runs() {
    local name=$1 program=$2 all module names
    planned=0
    all=$(tests_of "$program")
    if [[ $name == nowait ]] || grep -qv :: <<<"$all"; then
        known+=("$name")
        if selected "$name" && [[ $(tests_of "$program" "${filters[@]}") ]]; then
            planned=1
            echo "${filters[*]}" >"$work/runs/$name"
        fi
        return
    fi
    while read -r module; do
        known+=("$name" "$name::$module")
        selected "$name::$module" || continue
        if ((${#bins[@]} == 0)) && contains "$name::$module" "${never[@]}"; then continue; fi
        if is_face "$name" && ! contains "$name" "${faces[@]}" && ! contains "$name::$module" "${faces[@]}"; then continue; fi
        names=$(tests_of "$program" "${filters[@]}" | { grep "^$module::" || true; })
        [[ $names ]] || continue
        planned=$((planned + 1))
        echo --exact "${names//$'\n'/ }" >"$work/runs/$name::$module"
    done < <(cut -d : -f 1 <<<"$all" | sort -u)
}

# select_runs KERNEL: puts the planned runs into the guest, with --short those for this kernel.
select_runs() {
    local run name wanted=()
    for name in "${short_tests[@]}"; do
        [[ $1 == 6.12 ]] && contains "$name" "${short_without_6_12[@]}" || wanted+=("$name")
    done
    if [[ $1 == newest ]]; then wanted=("${short_newest[@]}"); fi
    rm -rf "$root/tests/runs"
    mkdir "$root/tests/runs"
    for run in "$work"/runs/*; do
        name=${run##*/}
        if [[ $short_selection ]] && ! contains "$name" "${wanted[@]}"; then continue; fi
        cp "$run" "$root/tests/runs/"
    done
}

# install_face NAME PROGRAM: a script that runs it in the source tree of its crate, where it has been built.
install_face() {
    share=1
    {
        echo '#!/bin/sh'
        printf 'cd %q && ' "$PWD/crates/${1%%.*}"
        # Tests have cargo build libraries, which is done.
        printf 'CARGO=true exec %q "$@"\n' "$2"
    } >"$root/tests/bin/$1"
    chmod 755 "$root/tests/bin/$1"
}

# Copies everything except kernel modules. It is the same for each kernel.
make_root() {
    local tool name path planned known=() run_here=()
    make_base scripts/test-kernels-guest.sh
    mkdir "$root/tests"
    cp "$root/init" "$root/tests/init"
    # A program of another processor can list its tests under QEMU's user mode, which has too few system
    # calls to run them.
    if [[ $arch != amd64 ]]; then run_here=(qemu-aarch64 -L "$root"); fi
    mkdir -p "$root/tests/bin" "$work/runs"
    if [[ -e /etc/mke2fs.conf ]]; then cp /etc/mke2fs.conf "$root/etc/"; fi
    for tool in "${tools[@]}"; do
        if [[ $arch != amd64 ]]; then
            # They are in the root, with their libraries.
            continue
        elif path=$(command -v "$tool"); then
            install_program "$path" "usr/sbin/$tool"
        else
            say "$tool is missing: tests that call it will skip"
        fi
    done

    if ((${#bins[@]})); then
        for path in "${bins[@]}"; do echo "$(basename "$path") $path"; done >"$work/tests"
    else
        say "building the tests"
        build_tests >"$work/tests"
    fi
    while read -r name path; do
        if ((${#bins[@]} == 0)) && contains "$name" "${never[@]}"; then continue; fi
        if is_face "$name"; then contains "$name" "${faces[@]%%::*}" || continue; fi
        plan_runs "$name" "$path"
        ((planned)) || continue
        if is_face "$name"; then
            install_face "$name" "$path"
            continue
        elif [[ $arch == amd64 ]]; then
            install_program "$path" "tests/bin/$name"
        else
            install -D -m 755 "$path" "$root/tests/bin/$name"
        fi
        # Without debug information the size is a tenth. Names for backtraces are kept.
        "$strip" --strip-debug "$root/tests/bin/$name"
    done <"$work/tests"
    for name in "${wanted_tests[@]}"; do
        ((${#bins[@]})) || contains "$name" "${known[@]}" || die "no test program or module $name"
    done
    [[ $(ls "$work/runs") ]] || die "no test to run"
    if [[ $share ]]; then prepare_share; fi
    {
        printf 'per_run=%q\nper_face=%q\ncargo_tmp=%q\ncases=%q\n' "$program_limit" "$face_limit" "$tests_tmp" "$cases"
        printf 'share=%q\nhost_path=%q\n' "$share" "$PATH"
        # The emulated NVMe drive, with queues that can be polled. Tests write over it.
        echo polled_device=/dev/nvme0n1
    } >"$root/tests/config"
}

# Builds what the tests of faces have cargo build, and finds the server of virtiofs.
prepare_share() {
    local place
    [[ $(id -u) == 0 ]] || die "the tests of ${face_crates[*]} need root"
    for place in /usr/lib/qemu /usr/libexec; do
        if [[ -x $place/virtiofsd ]]; then share=$place/virtiofsd; fi
    done
    [[ $share != 1 ]] || die "no virtiofsd; scripts/install-deps.sh --kernels installs what is needed"
    nice cargo build --quiet -p nowait-ahead -p nowait-aio
}

# start_server: serves this machine's root to the next guest, which shares its memory, and sets "devices" to QEMU's
# options for that.
start_server() {
    local socket=$sockets/share
    rm -f "$socket"
    "$share" --socket-path="$socket" -o source=/ -o sandbox=chroot -o cache=always -o log_level=err 2>"$work/share.log" &
    server=$!
    devices=(-object "memory-backend-memfd,id=memory,size=$memory,share=on" -machine "memory-backend=memory"
        -chardev "socket,id=share,path=$socket" -device "vhost-user-fs-pci,chardev=share,tag=machine")
    until [[ -S $socket ]]; do kill -0 "$server" 2>/dev/null || die "$(<"$work/share.log")"; sleep 0.1; done
}

# --- running it ------------------------------------------------------------------------------------

# Prints progress from the console's lines.
show_progress() {
    local line start=$SECONDS test=''
    while read -r line; do
        line=${line%$'\r'}
        case $line in
            *NOWAIT-KERNEL-UP:*) say "  $release is up after $((SECONDS - start)) s" ;;
            NOWAIT-KERNEL-RUN:*) say "  running ${line#*: }" ;;
            NOWAIT-KERNEL-RESULT:*) say "  ${line#*: }" ;;
            NOWAIT-KERNEL-ONCE:*) say "    failed, running again: ${line#*: }" ;;
            # A test that could not run prints "skipped: why". Skips are shown.
            "---- "*" stdout ----") test=${line#---- } test=${test% stdout ----} ;;
            skipped:*) say "    $test $line" ;;
        esac
    done
}

# run_kernel: boots $release, returns 0 if all tests passed.
#
# A guest whose kernel panics is booted again. With several processors, QEMU before 8.1 sometimes loses a
# breakpoint with which the kernel patches its own code ("Oops: int3", mostly during boot; Red Hat bug
# 2216496). A panic that the tests cause occurs again.
run_kernel() {
    local boots=3
    while ((boots--)); do
        if boot_kernel; then return 0; fi
        if ! grep -q 'Kernel panic - not syncing' "$store/$release.log"; then return 1; fi
        summary+=("$release: its kernel panicked: $(tr -d '\r' <"$store/$release.log" | grep -m 1 -E 'Oops|BUG:|panic')")
        say "${summary[-1]}"
    done
    return 1
}

# boot_kernel: boots $release once, returns 0 if all tests passed.
boot_kernel() {
    local log=$store/$release.log disk=$work/disk polled=$work/polled started=$SECONDS status=0
    local result pass fail devices=() memory=2G
    rm -f "$disk" "$polled"
    truncate -s 2G "$disk"
    if [[ $share ]]; then
        truncate -s 12G "$disk"
        # Forty programs run at the same time on FUSE. Memory that the guest does not use is not taken.
        memory=8G
        start_server
    fi
    truncate -s 256M "$polled"
    mkfs.ext4 -q -F "$disk"
    : >"$log"

    say "booting $release"
    timeout "$kernel_limit" "${qemu_command[@]}" -smp 2 -m "$memory" "${devices[@]}" \
        -kernel "$store/$release/boot/vmlinuz-$release" -initrd "$work/initramfs" \
        -append "console=$console quiet panic=-1 mitigations=off random.trust_cpu=on nvme.poll_queues=2" \
        -drive "file=$disk,format=raw,if=virtio,cache=unsafe" \
        -drive "file=$polled,format=raw,if=none,id=polled,cache=unsafe" -device nvme,drive=polled,serial=polled \
        -serial "file:$log" </dev/null &
    qemu=$!
    tail -f -s 0.3 -n +1 --pid="$qemu" "$log" | show_progress &
    wait $! # in the background, because a trap interrupts only a wait
    wait "$qemu" || status=$?
    qemu=
    # It ends with its guest.
    if [[ $server ]]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; server=; fi

    result=$(tr -d '\r' <"$log" | sed -n 's/^NOWAIT-KERNEL-TESTS: //p')
    if [[ $result =~ ^pass=([0-9]+)\ fail=([0-9]+)$ ]]; then
        pass=${BASH_REMATCH[1]} fail=${BASH_REMATCH[2]}
        summary+=("$release: $pass passed, $fail failed, $((SECONDS - started)) s")
        while read -r result; do summary+=("  $result"); done < <(tr -d '\r' <"$log" |
            sed -n -e 's/^NOWAIT-KERNEL-FAILED: /failed twice: /p' -e 's/^NOWAIT-KERNEL-ONCE: /failed in its first run: /p')
        if ((fail == 0 && pass > 0)); then return 0; fi
        if ((pass + fail == 0)); then summary+=("$release: no test ran"); fi
    elif ((status == 124)); then
        summary+=("$release: not finished after $kernel_limit s")
    else
        summary+=("$release: ended without a result (QEMU's status: $status)")
    fi
    echo "----- console of $release (kept in $log)" >&2
    tr -d '\r' <"$log" | tail -n 400 >&2
    echo "----- end of the console of $release" >&2
    return 1
}

summary=() failed=0
make_root
if [[ $list ]]; then
    for run in "$work"/runs/*; do echo "${run##*/}: $(<"$run")"; done
    exit 0
fi
for kernel in "${kernels[@]}"; do
    get_kernel "$kernel"
    select_runs "$kernel"
    make_initramfs
    say "$release: initramfs of $(du -m --apparent-size "$work/initramfs" | cut -f1) MiB," \
        "$(find "$root/tests/bin" -type f | wc -l) test programs, $(find "$root/tests/runs" -type f | wc -l) runs"
    run_kernel || failed=1
done
for line in "${summary[@]}"; do say "$line"; done
exit "$failed"
