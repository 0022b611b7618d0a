#!/usr/bin/env bash
# Installs missing Debian packages that the build and the tests need.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/install-deps.sh [--kernels] [--servers] [--packages] [--suites] [--arm64] [--python] [--peers] [--samba] [--strict]
       scripts/install-deps.sh --check OPTION...

Installs the missing programs that the build and the tests call. Prints the packages before.

  --kernels   also install the programs for scripts that boot guests (QEMU, busybox, nbdkit, ...)
  --servers   also install nginx and its sources, for nowait-bench server and the nginx module; Debian
              starts it as a service
  --packages  also install the programs that build and test Debian packages
  --suites    also install the programs that scripts/test-suites.sh builds other programs with
  --arm64     also install the programs that build for aarch64 and boot a guest of it
  --python    also install the module that makes virtual environments and CPython's tests, unless python3 has them
  --peers     also install the newest bfs, fd, dust, pdu and liburing, for nowait-bench, in target/peers
  --samba     also install Samba, smbtorture and what the scripts for the Samba module need; Debian starts Samba as a service
  --strict    fail if a program is still missing at the end (default: warn)
  --check     install nothing: fail if a program of the other options is missing, and print how to install it
USAGE
}

# "program package": a package counts as installed if its program, or the file of this path, exists, however it was
# installed.
needs=(
    "cc gcc"
    "c++ g++"
    "clang clang"
    "pkg-config pkg-config"
    "fio fio"
    "stress-ng stress-ng"
    "nm binutils"
    "valgrind valgrind"
    "strace strace"
    "musl-gcc musl-tools"
    "i686-linux-gnu-gcc gcc-i686-linux-gnu"
    "/usr/i686-linux-gnu/include/stdio.h libc6-dev-i386-cross"
    "/lib/ld-linux.so.2 libc6-i386"
    "go golang-go"
    "bfs bfs"
    "vmtouch vmtouch"
    "fincore util-linux-extra"
    "mkfs.ext4 e2fsprogs"
    "debugfs e2fsprogs"
    "mkfs.xfs xfsprogs"
    "mkfs.btrfs btrfs-progs"
    "fusermount3 fuse3"
    "setfattr attr"
    "curl curl"
    "wrk wrk"
    "sha256sum coreutils"
    "losetup mount"
    "unshare util-linux"
    "blockdev util-linux"
    "mksquashfs squashfs-tools"
    "mkfs.erofs erofs-utils"
    "jq jq"
    "git git"
    "make make"
    "python3 python3"
    "rsync rsync"
    "restic restic"
    "borg borgbackup"
    "nocache nocache"
    "shellcheck shellcheck"
    "chromium chromium"
    "mandoc mandoc"
    "zsh zsh"
    "fish fish"
)
kernel_needs=(
    "qemu-system-x86_64 qemu-system-x86"
    "nbdkit nbdkit"
    "busybox busybox-static"
    "cpio cpio"
    "depmod kmod"
    "zstd zstd"
    "xz xz-utils"
    "strip binutils"
)

package_needs=(
    "dpkg-buildpackage dpkg-dev"
    "dh debhelper"
    "lintian lintian"
    "mmdebstrap mmdebstrap"
)

suite_needs=(
    "make make"
    "dpkg-source dpkg-dev"
    "setpriv util-linux"
    "runtest dejagnu"
    "perl perl"
    "/usr/include/zlib.h zlib1g-dev"
)

arm64_needs=(
    "aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu"
    "aarch64-linux-gnu-strip binutils-aarch64-linux-gnu"
    "qemu-system-aarch64 qemu-system-arm"
    "qemu-aarch64 qemu-user"
    "mmdebstrap mmdebstrap"
)

server_needs=(
    "nginx nginx"
    "dh_nginx nginx-dev"
    "openssl openssl"
    "setpriv util-linux"
)

samba_needs=(
    "smbd samba"
    "smbpasswd samba-common-bin"
    "smbtorture samba-testsuite"
    "/usr/share/doc/samba-vfs-modules samba-vfs-modules"
    "/usr/include/nettle/md4.h nettle-dev"
    "dpkg-source dpkg-dev"
    "mmdebstrap mmdebstrap"
    "/usr/share/doc/python3-venv python3-venv"
)

strict=
peers=
check=
asked=$*
while (($#)); do
    case $1 in
        --kernels)
            needs+=("${kernel_needs[@]}")
            # Since Debian 13 it is in a package of its own.
            [[ -e /usr/libexec/virtiofsd ]] || needs+=("/usr/lib/qemu/virtiofsd qemu-system-common")
            ;;
        --servers) needs+=("${server_needs[@]}") ;;
        --packages) needs+=("${package_needs[@]}") ;;
        --suites) needs+=("${suite_needs[@]}") ;;
        --arm64) needs+=("${kernel_needs[@]}" "${arm64_needs[@]}") ;;
        --python)
            python3 -c 'import ensurepip' 2>/dev/null || needs+=("/usr/share/doc/python3-venv python3-venv")
            version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
            python3 -c 'import test.test_os' 2>/dev/null ||
                needs+=("/usr/share/doc/libpython$version-testsuite libpython$version-testsuite")
            ;;
        --peers) peers=1; needs+=("make make" "c++ g++" "dpkg-source dpkg-dev") ;;
        --samba) needs+=("${samba_needs[@]}") ;;
        --strict) strict=1 ;;
        --check) check=1; needs=() ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

# mkfs programs are in sbin, which a user's PATH may lack.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

missing_programs() {
    local need
    for need in "${needs[@]}"; do
        command -v "${need% *}" >/dev/null || [[ -e ${need% *} ]] || echo "$need"
    done
}

finish() {
    [[ -z $peers ]] || exec "$(dirname "$0")/peers.sh"
    exit 0
}

mapfile -t missing < <(missing_programs)
if ((${#missing[@]} == 0)); then
    finish
fi

if [[ $check ]]; then
    echo "missing: $(printf '%s\n' "${missing[@]}" | cut -d' ' -f1 | paste -sd' '); first: scripts/install-deps.sh${asked#--check}" >&2
    exit 1
fi

as_root=()
if ((EUID != 0)); then
    as_root=(sudo -n)
fi

if ! command -v apt-get >/dev/null; then
    echo "install-deps: cannot install: there is no apt-get" >&2
elif ((EUID != 0)) && ! sudo -n true 2>/dev/null; then
    echo "install-deps: cannot install: needs root, or sudo without a password" >&2
else
    mapfile -t packages < <(printf '%s\n' "${missing[@]}" | cut -d' ' -f2 | sort -u)
    echo "install-deps: installing ${packages[*]}"
    # An update may fail because of an unneeded repository. Only a failure of the install counts.
    "${as_root[@]}" apt-get update -qq ||
        echo "install-deps: apt-get update failed; trying with the existing package lists" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null ||
        echo "install-deps: apt-get install failed" >&2
fi

mapfile -t missing < <(missing_programs)
if ((${#missing[@]})); then
    echo "install-deps: warning: missing: $(printf '%s\n' "${missing[@]}" |
        sed 's/\(.*\) \(.*\)/\1 (package \2)/' | paste -sd, | sed 's/,/, /g')" >&2
    [[ -z $strict ]]
fi
finish
