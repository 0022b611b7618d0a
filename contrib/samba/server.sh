# shellcheck shell=bash
# Functions for scripts that run a private smbd. To be read with source, by a script that has called own_namespace.

# shellcheck disable=SC2034 # for the scripts
samba_user=daemon samba_password=secret-of-a-test
# The program with its arguments that runs smbd.
smbd_runner=(env)
# The directory that is the root of smbd.
samba_root=/

# own_namespace SCRIPT ARGUMENT...: runs the script again, in a mount namespace of its own. It must be called before anything
# else. If the namespace were that of smbd alone, it would have copies of the mounts of slow disks, which would stay when
# the disks go.
own_namespace() {
    [[ ${SAMBA_NAMESPACE:-} == "$$" ]] || SAMBA_NAMESPACE=$$ exec unshare --mount "$@"
}

# start_disk MOUNTPOINT OPTION...: a slow disk, which ends with this script, also if the script is killed. Adds its process
# to `disks`. stop_disks ends all.
disks=()
# shellcheck disable=SC2154 # target is of the script
start_disk() {
    local mountpoint=$1
    shift
    mkdir -p "$mountpoint"
    setpriv --pdeathsig TERM "$target/release/slowdisk" "$@" "$mountpoint" >/dev/null &
    disks+=($!)
    until mountpoint -q "$mountpoint"; do
        kill -0 "${disks[-1]}" || return
        sleep 0.1
    done
}

stop_disks() {
    ((!${#disks[@]})) || { kill "${disks[@]}"; wait "${disks[@]}"; } || true
}

# start_smbd DIR PORT LIBRARY MODULES: an smbd of its own on 127.0.0.1 whose state is in DIR. DIR/shares.conf has its
# shares. LIBRARY is the directory of libnowait.so, and MODULES that of the modules. Sets smbd_pid. stop_smbd ends it.
start_smbd() {
    local dir=$1 port=$2 library=$3 modules=$4 system
    system=$(chroot "$samba_root" smbd -b | sed -n 's/^ *MODULESDIR: //p')/vfs
    # smbd loads modules from the directory of the system alone.
    system=${samba_root%/}$system
    mountpoint -q "$system" || mount -t overlay -o "lowerdir=$modules:$system" overlay "$system"
    mkdir -p "$dir"/{private,lock,state,cache,pid,ncalrpc}
    cat >"$dir/smb.conf" <<CONF
[global]
    server role = standalone server
    workgroup = NOWAIT
    smb ports = $port
    interfaces = 127.0.0.1/8
    bind interfaces only = yes
    disable netbios = yes
    private dir = $dir/private
    lock directory = $dir/lock
    state directory = $dir/state
    cache directory = $dir/cache
    pid directory = $dir/pid
    ncalrpc dir = $dir/ncalrpc
    passdb backend = tdbsam
    log file = $dir/log.smbd
    log level = ${SAMBA_LOG_LEVEL:-1}
    max log size = 0
    load printers = no
    printcap name = /dev/null
    disable spoolss = yes
include = $dir/shares.conf
CONF
    printf '%s\n%s\n' "$samba_password" "$samba_password" |
        chroot "$samba_root" smbpasswd -c "$dir/smb.conf" -L -s -a "$samba_user" >/dev/null
    LD_LIBRARY_PATH=$library setpriv --pdeathsig TERM "${smbd_runner[@]}" \
        chroot "$samba_root" smbd --foreground --configfile="$dir/smb.conf" >"$dir/smbd.out" 2>&1 &
    smbd_pid=$!
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
        kill -0 $smbd_pid 2>/dev/null || break
        sleep 0.1
    done
    cat "$dir/smbd.out" "$dir/log.smbd" >&2
    echo "smbd does not answer on port $port" >&2
    return 1
}

stop_smbd() {
    if [[ ${smbd_pid:-} ]]; then
        kill "$smbd_pid" 2>/dev/null || true
        wait "$smbd_pid" 2>/dev/null || true
        smbd_pid=''
    fi
}

# share NAME PATH [LINE...]: prints the section of a share.
share() {
    printf '[%s]\n    path = %s\n    read only = no\n' "$1" "$2"
    shift 2
    ((!$#)) || printf '    %s\n' "$@"
}
