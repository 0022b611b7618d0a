# shellcheck shell=bash
# Functions for the scripts that boot guests in QEMU: they fetch kernels of Debian and make an initramfs.
#
# Sourced from the project's root. The caller sets "modules", the kernel modules that a guest may load,
# and defines say and die. It may set "arch" to arm64; the default is amd64. This file sets "store", the
# directory of the kernels, and "work" and "sockets", new directories that the caller removes. Sockets have short paths.

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
arch=${arch:-amd64}
[[ $(uname -m) = x86_64 ]] || die "x86-64 only"
needed=(busybox cpio depmod modprobe xz strip jq apt-get dpkg)
# shellcheck disable=SC2034 # "console" and "strip" are the caller's too
if [[ $arch == arm64 ]]; then
    option=--arm64 needed+=(qemu-system-aarch64 qemu-aarch64 aarch64-linux-gnu-gcc aarch64-linux-gnu-strip mmdebstrap)
    qemu_command=(qemu-system-aarch64 -machine virt) console=ttyAMA0
    strip='aarch64-linux-gnu-strip'
else
    option=--kernels needed+=(qemu-system-x86_64)
    qemu_command=(qemu-system-x86_64) console=ttyS0
    strip='strip'
fi
# QEMU emulates the processor. It needs no KVM.
qemu_command+=(-accel 'tcg,thread=multi' -cpu max -nodefaults -display none -no-reboot)
for program in "${needed[@]}"; do
    command -v "$program" >/dev/null || die "no $program; scripts/install-deps.sh $option installs what is needed"
done

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
store=$target/kernels
mkdir -p "$store"
work=$(mktemp -d "$store/run.XXXXXX")
# shellcheck disable=SC2034 # the caller's
sockets=$(mktemp -d)

# Options for the machine's package lists. fetch_lists makes private lists if these are not sufficient.
apt_options=(-o APT::Sandbox::User=root -o Dir::Cache="$store/apt/cache")
if [[ $arch != amd64 ]]; then apt_options+=(-o APT::Architecture="$arch" -o APT::Architectures::="$arch"); fi

# Fetches package lists from the machine's sources. Does not need root and does not change the machine's lists.
fetch_lists() {
    say "fetching package lists"
    mkdir -p "$store/apt/$arch/lists/partial" "$store/apt/cache/archives/partial"
    apt_options+=(-o Dir::State::lists="$store/apt/$arch/lists")
    apt-get "${apt_options[@]}" -qq update >&2 || say "apt-get update had errors; continuing"
}

# Fetches the package lists of Debian unstable from the mirror that this machine has Debian from. They are kept
# for a day.
fetch_unstable() {
    local lists=$store/apt/$arch/unstable mirror key=/usr/share/keyrings/debian-archive-keyring.gpg
    # shellcheck disable=SC2016 # apt-get replaces it
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' |
        head -n 1)
    [[ $mirror ]] || die "no mirror of Debian in this machine's apt sources"
    mkdir -p "$lists/partial" "$store/apt/cache/archives/partial"
    {
        printf 'Types: deb\nURIs: %s\nSuites: unstable\nComponents: main\nTargets: Packages\n' "$mirror"
        if [[ -e $key ]]; then echo "Signed-By: $key"; fi
    } >"$store/apt/unstable.sources"
    apt_options+=(-o Dir::State::lists="$lists" -o Acquire::Languages=none
        -o Dir::Etc::sourcelist="$store/apt/unstable.sources" -o Dir::Etc::sourceparts=/dev/null)
    if [[ $(find "$lists" -maxdepth 1 -name '*_Packages*' -mtime -1) ]]; then return; fi
    say "fetching package lists of Debian unstable"
    apt-get "${apt_options[@]}" -qq update >&2 || say "apt-get update had errors; continuing"
}

# newest_package 6.1 -> linux-image-6.1.0-99-cloud-$arch; "newest": of any version
newest_package() {
    local version=${1/./\\.}
    if [[ $1 == newest ]]; then version='[0-9]+\.[0-9]+'; fi
    apt-cache "${apt_options[@]}" pkgnames linux-image- |
        { grep -E "^linux-image-$version\.[0-9].*-cloud-$arch\$" || true; } | sort -V | tail -n 1
}

# kernel_packages PACKAGE: prints the packages of which a kernel consists. Since Linux 7.0 the kernel, its modules
# and their lists are packages of their own, with the release in their names.
kernel_packages() {
    echo "$1"
    apt-cache "${apt_options[@]}" depends --important "$1" |
        sed -n "s/^ *Depends: \(linux-[a-z]*-${1#linux-image-}\)\$/\1/p"
}

# Leaves a kernel and its modules in $store/<release>/ and sets "release". The version "newest" is the newest one
# of Debian unstable.
get_kernel() {
    local version=$1 package deb tree
    local fetch=fetch_lists
    if [[ $version == newest ]]; then
        # The options that fetch_unstable adds are for this kernel only.
        local apt_options=("${apt_options[@]}")
        fetch=fetch_unstable
        fetch_unstable
    fi
    mkdir -p "$store/apt/cache/archives/partial"
    package=$(newest_package "$version")
    if [[ -z $package ]]; then
        "$fetch"
        package=$(newest_package "$version")
    fi
    if [[ -z $package ]]; then
        release=$(cd "$store" && printf '%s\n' "${version/newest/[0-9]}"*-"cloud-$arch"/ | sort -V | tail -n 1)
        release=${release%/}
        [[ -d $store/$release ]] || die "no package of a kernel $version for $arch in this machine's apt sources"
        say "no package for $version is available; using $release from an earlier run"
        return
    fi
    release=${package#linux-image-}
    if [[ -d $store/$release ]]; then return; fi

    say "downloading $package"
    mkdir "$work/deb"
    download_kernel "$package" || {
        # An outdated list names a version that the archive no longer has.
        if [[ $version == newest ]]; then rm -rf "$store/apt/$arch/unstable"; fi
        "$fetch"
        package=$(newest_package "$version")
        release=${package#linux-image-}
        download_kernel "$package" || die "cannot download $package"
    }
    tree=$work/deb/root
    for deb in "$work"/deb/*.deb; do dpkg -x "$deb" "$tree"; done
    # In newer packages everything is below /usr, the kernel too.
    if [[ ! -e $tree/lib ]]; then ln -s usr/lib "$tree/lib"; fi
    if [[ ! -e $tree/boot/vmlinuz-$release ]]; then
        install -D -m 644 "$tree/lib/modules/$release/vmlinuz" "$tree/boot/vmlinuz-$release"
    fi
    depmod -b "$tree" "$release"
    mv "$tree" "$store/$release"
    rm -r "$work/deb"
}

# download_kernel PACKAGE: with the packages that it consists of, to $work/deb.
download_kernel() {
    local packages
    mapfile -t packages < <(kernel_packages "$1")
    (cd "$work/deb" && apt-get "${apt_options[@]}" -qq download "${packages[@]}")
}

# Leaves the programs and libraries of a small Debian of $arch in $store/root-$arch. None of them is run.
get_foreign_root() { # PACKAGE...
    local packages
    packages=$(IFS=, && echo "$*")
    foreign=$store/root-$arch
    if [[ -e $foreign ]]; then return; fi
    say "downloading programs for $arch"
    mmdebstrap --quiet --variant=extract --architectures="$arch" --include="$packages" bookworm "$work/foreign"
    rm -rf "$work"/foreign/{dev,boot,var,usr/share,usr/include,lib/udev,lib/systemd}
    mv "$work/foreign" "$foreign"
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
    # busybox's shell is not used, because it prefers its own mount and losetup to those on the PATH.
    if [[ $arch == amd64 ]]; then
        mkdir -p "$root"/{bin,sbin,etc}
        install_program "$(command -v busybox)" bin/busybox
        install_program "$(command -v sh)" bin/sh
    else
        get_foreign_root attr btrfs-progs busybox-static dash e2fsprogs fuse3 libgcc-s1 mount xfsprogs
        cp -a "$foreign" "$root"
        rm -f "$root/sbin/modprobe"
    fi
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
