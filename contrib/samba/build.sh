#!/usr/bin/env bash
# Builds the Samba modules of contrib/samba for the installed samba of Debian.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: contrib/samba/build.sh [--install] [--suite SUITE | --library DIR]

Builds, in target/samba/modules (or target/samba/SUITE):

  nowait.so          contrib/samba/vfs_nowait.c
  default_nowait.so  Samba's vfs_default with contrib/samba/default-nowait.patch, as a module of another name

A module fits one version of samba alone, the one that is installed. Its sources come from Debian, with apt-get source.
They are configured with Debian's options; then the generated headers are built, not Samba itself: 3 minutes. Sources
and headers are kept in target/samba for the next run. Prints which packages are missing, and how to install them. Needs root.

  --install      install the packages that the build needs
  --suite SUITE  build in a chroot of this Debian suite (bookworm, trixie), made with mmdebstrap in
                 target/samba/SUITE.root
  --library DIR  the directory of libnowait.so (default: target/capi, made with scripts/link-c.sh)
USAGE
}

suite='' library='' install=''
while (($#)); do
    case $1 in
        --install) install=1 ;;
        --suite) suite=${2:?}; shift ;;
        --library) library=$(realpath "${2:?}"); shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
cd "$(dirname "$0")/../.."
project=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
samba=$target/samba
mkdir -p "$samba"
if [[ ! $library ]]; then
    library=$target/capi
    cargo build --quiet --release -p nowait-capi
    scripts/link-c.sh "$target/release/libnowait_capi.a" "$library"
fi

if [[ $suite ]]; then
    root=$samba/$suite.root
    # shellcheck disable=SC2016 # the format is apt-get's
    place=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sort -u | head -n 1)
    [[ -e $root/etc/debian_version ]] ||
        mmdebstrap --quiet --variant=apt --include=samba,samba-vfs-modules "$suite" "$root" "deb $place $suite main"
    mkdir -p "$root/nowait/crates/nowait-capi" "$root/nowait/library"
    cp -r contrib "$root/nowait"
    cp -r crates/nowait-capi/include "$root/nowait/crates/nowait-capi"
    cp "$library"/libnowait.so* "$root/nowait/library"
    chroot "$root" /nowait/contrib/samba/build.sh --install --library /nowait/library
    mkdir -p "$samba/$suite"
    cp "$root"/nowait/target/samba/modules/*.so "$samba/$suite"
    exit
fi

# The headers of libraries that Debian's options name. Options whose libraries no header of Samba depends on are left out.
packages=(gcc libc6-dev make patch dpkg-dev pkg-config bison flex perl libparse-yapp-perl libjson-perl python3 xsltproc
    libacl1-dev libarchive-dev libattr1-dev libavahi-client-dev libblkid-dev libbsd-dev libcap-dev libcmocka-dev
    libcups2-dev libdbus-1-dev libgnutls28-dev libicu-dev libjansson-dev libkeyutils-dev libldap-dev liblmdb-dev
    libncurses-dev libpam0g-dev libpopt-dev libreadline-dev libsystemd-dev libtalloc-dev libtasn1-6-dev libtasn1-bin
    libtdb-dev libtevent-dev liburing-dev xfslibs-dev zlib1g-dev)
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
    if [[ ! $install ]]; then
        echo "build-samba: packages are missing; first: apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    echo "build-samba: installing ${missing[*]}"
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >"$samba/install.log"
fi

version=$(dpkg-query -W -f '${Version}' samba)
source=$samba/${version//[:\/]/_}
[[ -e $source/fetched ]] || (
    # The lists of this system may lack source packages. Its own lists stay as they are.
    apt=$samba/apt
    mkdir -p "$apt"/{lists,cache/archives}/partial "$source.new"
    # shellcheck disable=SC2016 # the format is apt-get's
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
        sort -u >"$apt/sources.list"
    apt() {
        apt-get -qq -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- \
            -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root "$@"
    }
    cd "$source.new"
    apt update
    apt source --download-only "samba=$version" >"$samba/source.log"
    rm -rf "$source"
    dpkg-source --no-check -x samba_*.dsc "$source" >>"$samba/source.log" 2>&1
    touch "$source/fetched"
    rm -rf "$source.new"
)
cd "$source"

# The programs of the system: a python3 elsewhere in PATH lacks the modules.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONHASHSEED=1 PYTHON=/usr/bin/python3
libraries=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
waf() {
    ./buildtools/bin/waf -j1 "$@" >"$samba/waf.log" 2>&1 || { tail -n 30 "$samba/waf.log" >&2; exit 1; }
}
# The configuration names this directory.
if [[ $(cat configured 2>/dev/null) != "$PWD" ]]; then
    echo "build-samba: configuring samba $version" >&2
    CFLAGS=$(dpkg-buildflags --get CFLAGS) CPPFLAGS=$(dpkg-buildflags --get CPPFLAGS) \
        LDFLAGS=$(dpkg-buildflags --get LDFLAGS) waf configure --prefix=/usr --enable-fhs --sysconfdir=/etc \
        --localstatedir=/var --libexecdir=/usr/libexec --libdir="$libraries" --datadir=/usr/share \
        --with-modulesdir="$libraries/samba" --with-privatedir=/var/lib/samba/private --with-piddir=/run/samba \
        --with-lockdir=/run/samba --with-sockets-dir=/run/samba --with-statedir=/var/lib/samba \
        --with-cachedir=/var/cache/samba --with-pam --with-syslog --with-utmp --with-winbind --with-automount \
        --with-ldap --with-ads --enable-avahi --disable-spotlight --with-profiling-data --disable-rpath \
        --disable-rpath-install --bundled-libraries=NONE,ldb --with-cluster-support --with-quota --with-systemd \
        --disable-cephfs --disable-python --without-ad-dc
    echo "$PWD" >configured
fi
# The generated headers that the modules include.
generators=param_local.h,s3_param_proto_h,ntstatus_generated,werror_generated
for idl in AUTH DFSBLOBS FILE_ID IOCTL KRB5PAC LSA MISC NETLOGON SAMR SECURITY SERVER_ID SMB2_LEASE_STRUCT SMBXSRV SMB_ACL; do
    generators+=,PIDL_$idl
done
if [[ -e librpc/idl/smb3posix.idl ]]; then
    # Samba after 4.17 generates these, too.
    generators+=,hresult_generated,PIDL_CONDITIONAL_ACE,PIDL_NBT,PIDL_SMB3POSIX
fi
waf build --targets="$generators"

out=$samba/modules
mkdir -p "$out"
# lib/util has a signal.h of its own, so it is no directory of headers here.
includes=(-I. -Ibin/default)
for directory in include source4 source3 source3/include lib source4/lib lib/replace source3/lib lib/crypto libcli dynconfig; do
    includes+=("-I$directory" "-Ibin/default/$directory")
done
shopt -s nullglob
# module NAME SOURCE: its functions are those of the installed libraries, each with the version of this samba.
module() {
    gcc -shared -fPIC -O2 -g -Wall -Wextra -Wno-unused-parameter -Werror=implicit \
        -DHAVE_CONFIG_H=1 -D_SAMBA_BUILD_=4 -D_GNU_SOURCE=1 -D_XOPEN_SOURCE_EXTENDED=1 -D__STDC_WANT_LIB_EXT1__=1 \
        "${includes[@]}" -isystem "$project/crates/nowait-capi/include" -o "$out/$1.so.new" "$2" \
        -Wl,--as-needed -Wl,-z,defs -Wl,-z,now -Wl,-z,relro -Wl,-rpath-link,"$libraries/samba:$libraries" \
        "$libraries"/samba/lib*.so* "$libraries"/lib{samba-util,smbconf,tevent-util,samba-errors,samba-hostconfig,ndr*,samba-passdb}.so.? \
        -ltevent -ltalloc -ltdb -L"$library" -lnowait >"$out/$1.log" 2>&1 || { cat "$out/$1.log" >&2; exit 1; }
    mv "$out/$1.so.new" "$out/$1.so"
    echo "$out/$1.so"
}
module nowait "$project/contrib/samba/vfs_nowait.c"

# vfs_default under another name, so that it can be used beside the one within smbd.
patched=source3/modules/vfs_default_nowait.c
if ! patch --quiet --output="$patched" source3/modules/vfs_default.c "$project/contrib/samba/default-nowait.patch"; then
    echo "build-samba: default-nowait.patch is for Samba 4.17: default_nowait.so is not built" >&2
    exit
fi
sed -i 's/vfs_default_init/samba_init_module/; s/DEFAULT_VFS_MODULE_NAME/"default_nowait"/' "$patched"
module default_nowait "$patched"
