# shellcheck shell=bash
# Functions for scripts that run a private smbd. To be read with source.

# shellcheck disable=SC2034 # for the scripts
samba_user=daemon samba_password=secret-of-a-test
# The program with its arguments that runs smbd.
smbd_runner=(env)

# start_smbd DIR PORT LIBRARY MODULES: an smbd of its own on 127.0.0.1 whose state is in DIR. DIR/shares.conf has its
# shares. LIBRARY is the directory of libnowait.so, and MODULES that of the modules. Sets smbd_pid. stop_smbd ends it.
start_smbd() {
    local dir=$1 port=$2 library=$3 modules=$4 system
    system=$(smbd -b | sed -n 's/^ *MODULESDIR: //p')/vfs
    mkdir -p "$dir"/{private,lock,state,cache,pid,ncalrpc,vfs}
    cp "$system"/*.so "$modules"/*.so "$dir/vfs"
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
        smbpasswd -c "$dir/smb.conf" -L -s -a "$samba_user" >/dev/null
    # smbd loads modules from the directory of the system alone. It sees another one there.
    # shellcheck disable=SC2016 # the inner shell expands it
    LD_LIBRARY_PATH=$library unshare --mount sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh "$dir/vfs" "$system" \
        "${smbd_runner[@]}" smbd --foreground --configfile="$dir/smb.conf" >"$dir/smbd.out" 2>&1 &
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
