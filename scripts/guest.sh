# shellcheck shell=bash
# Functions for the scripts that boot guests in QEMU: they fetch kernels of Debian and make an initramfs.
#
# Sourced from the project's root. The caller sets "modules", the kernel modules that a guest may load,
# and defines say and die. This file sets "store", the directory of the kernels, and "work", a new
# directory that the caller removes.

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[[ $(uname -m) = x86_64 ]] || die "x86-64 only"
for program in qemu-system-x86_64 busybox cpio depmod modprobe xz strip jq apt-get dpkg; do
    command -v "$program" >/dev/null || die "no $program; scripts/install-deps.sh --kernels installs what is needed"
done

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
store=$target/kernels
mkdir -p "$store"
work=$(mktemp -d "$store/run.XXXXXX")

# Options for the machine's package lists. fetch_lists makes private lists if these are not sufficient.
apt_options=(-o APT::Sandbox::User=root -o Dir::Cache="$store/apt/cache")

# Fetches package lists from the machine's sources. Does not need root and does not change the machine's lists.
fetch_lists() {
    say "fetching package lists"
    mkdir -p "$store/apt/lists/partial" "$store/apt/cache/archives/partial"
    apt_options+=(-o Dir::State::lists="$store/apt/lists")
    apt-get "${apt_options[@]}" -qq update >&2 || say "apt-get update had errors; continuing"
}

# newest_package 6.1 -> linux-image-6.1.0-99-cloud-amd64
newest_package() {
    apt-cache "${apt_options[@]}" pkgnames "linux-image-$1." |
        { grep -E "^linux-image-${1/./\\.}\.[0-9].*-cloud-amd64$" || true; } | sort -V | tail -n 1
}

# Leaves a kernel and its modules in $store/<release>/ and sets "release".
get_kernel() {
    local package
    mkdir -p "$store/apt/cache/archives/partial"
    package=$(newest_package "$1")
    if [[ -z $package ]]; then
        fetch_lists
        package=$(newest_package "$1")
    fi
    if [[ -z $package ]]; then
        release=$(cd "$store" && printf '%s\n' "$1".*-cloud-amd64/ | sort -V | tail -n 1)
        release=${release%/}
        [[ -d $store/$release ]] || die "no package linux-image-$1.*-cloud-amd64 in this machine's apt sources"
        say "no package for $1 is available; using $release from an earlier run"
        return
    fi
    release=${package#linux-image-}
    if [[ -d $store/$release ]]; then return; fi

    say "downloading $package"
    mkdir "$work/deb"
    # An outdated list names a version that the archive no longer has.
    (cd "$work/deb" && apt-get "${apt_options[@]}" -qq download "$package") || {
        fetch_lists
        (cd "$work/deb" && apt-get "${apt_options[@]}" -qq download "$package") || die "cannot download $package"
    }
    dpkg -x "$work"/deb/*.deb "$work/deb/root"
    depmod -b "$work/deb/root" "$release"
    mv "$work/deb/root" "$store/$release"
    rm -r "$work/deb"
}

# install_program FILE TO: with the shared libraries it needs, each at its own path.
install_program() {
    local library
    install -D -m 755 "$1" "$root/$2"
    # ldd fails for a static program, which needs no libraries.
    { ldd "$1" 2>/dev/null || true; } | { grep -o '/[^ ]*' || true; } | while read -r library; do
        [[ -e $root$library ]] || install -D -m 755 "$library" "$root$library"
    done
}

# make_base INIT: $root with a shell, busybox, and INIT as PID 1.
make_base() {
    root=$work/root
    mkdir -p "$root"/{bin,sbin,etc}
    install_program "$(command -v busybox)" bin/busybox
    # busybox's shell is not used, because it prefers its own mount and losetup to those on the PATH.
    install_program "$(command -v sh)" bin/sh
    ln -s ../bin/busybox "$root/sbin/modprobe" # the kernel calls it by this path
    install -m 755 "$1" "$root/init"
    echo "root:x:0:0:root:/root:/bin/sh" >"$root/etc/passwd"
    echo "root:x:0:" >"$root/etc/group"
    ln -s /proc/self/mounts "$root/etc/mtab"
}

# make_initramfs: $root and the modules of $release
make_initramfs() {
    local from=$store/$release/lib/modules/$release to=$root/lib/modules/$release module file
    rm -rf "$root/lib/modules"
    mkdir -p "$to"
    # shellcheck disable=SC2154 # the caller sets it
    for module in "${modules[@]}"; do
        # Lines are "insmod /path/x.ko.xz" or "builtin x". Unknown names are not an error: kernels differ.
        modprobe -d "$store/$release" -S "$release" --show-depends "$module" 2>/dev/null || true
    done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r file; do
        file=$(realpath --relative-to="$(realpath "$from")" "$file")
        install -D -m 644 "$from/$file" "$to/$file"
    done
    find "$to" -name '*.ko.xz' -exec xz -d {} +
    cp "$from"/modules.{builtin,builtin.modinfo,order} "$to/"
    # depmod only warns about modules of modules.order that the guest does not have.
    depmod -b "$root" "$release" 2>/dev/null
    # Not compressed: emulated decompression takes longer than loading.
    (cd "$root" && find . -print0 | cpio --null --create --format=newc --owner=0:0 --quiet) >"$work/initramfs"
}
