#!/usr/bin/env bash
# What scripts/test-packages.sh runs in the new root: install, try, purge, compare.
set -euo pipefail
cd /packages

files() {
    find / -xdev \( -path /proc -o -path /packages -o -path /tmp -o -path /root -o -path /var/log \
        -o -path /var/cache -o -path /var/lib/dpkg -o -path /etc/ld.so.cache \) -prune -o -print | sort
}

try() { # WHAT COMMAND...
    local what=$1
    shift
    if ! "$@" >/tmp/try.log 2>&1; then
        echo "test-packages: $what: failed: $*" >&2
        cat /tmp/try.log >&2
        exit 1
    fi
    echo "test-packages: $what: passed"
}

says() { # TEXT COMMAND...
    local text=$1 said
    shift
    said=$("$@" 2>&1)
    [[ $said == *"$text"* ]] || { echo "no '$text' in: $said"; return 1; }
}

files >/tmp/before

try "install" dpkg -i ./*.deb
try "version" says "nowait 0." nowait --version
try "doctor" nowait doctor /tmp
try "a program with readahead" says "usr" nowait run --stats -- ls /
echo some bytes >/tmp/file
try "fincore" says /tmp/file nowait fincore /tmp/file
try "scan" says /etc/passwd nowait scan -r /etc
for page in nowait nowait-doctor nowait-demo nowait-fincore nowait-warm nowait-evict nowait-keep nowait-cache nowait-scan nowait-du nowait-run nowait-learn; do
    try "man $page" says NAME man "$page"
done
try "the unit of nowait keep" grep -q "^ExecStart=/usr/bin/nowait keep " "/lib/systemd/system/nowait-keep@.service"
try "its directory" test -d /etc/nowait/keep
for page in nowait nowait-aio; do
    try "man 7 $page" says NAME man 7 "$page"
done
# Each function of the header has a page by its name.
for page in nowait $(sed -n 's/^[a-z].*\b\(nw_[a-z0-9_]*\)(.*/\1/p' /usr/include/nowait.h | sort -u); do
    try "man 3 $page" says "$page" man 3 "$page"
done
try "bash completion" says "-F _nowait" bash -c \
    'source /usr/share/bash-completion/bash_completion; _completion_loader nowait; complete -p nowait'
# shellcheck disable=SC2016 # zsh expands it
try "zsh completion" says _nowait zsh -fc 'autoload -Uz compinit; compinit -u -d /tmp/dump; echo $_comps[nowait]'
try "fish completion" says scan fish -c 'complete -C "nowait sc"'
try "glibc's aio_read" says "some bytes" ./aio_read /tmp/file
try "the preloaded aio_read" says "symbol \`aio_read64'" env LD_DEBUG=bindings LD_PRELOAD=libnowait_aio.so.0 \
    sh -c './aio_read /tmp/file 2>&1 | grep "libnowait_aio.so.0.*aio_read"'
try "its bytes" says "some bytes" env LD_PRELOAD=libnowait_aio.so.0 ./aio_read /tmp/file
try "the link for programs that are built" test -e "$(dpkg -L libnowait-aio-dev | grep 'libnowait_aio\.so$')"
try "a program with libnowait" says "libnowait 0." ./about
try "the files for programs that are built" test -e /usr/include/nowait.h -a -e \
    "$(dpkg -L libnowait-dev | grep 'pkgconfig/nowait\.pc$')"
try "dpkg --verify" dpkg --verify nowait libnowait0 libnowait-dev libnowait-aio0 libnowait-aio-dev

try "purge" dpkg --purge nowait libnowait-dev libnowait0 libnowait-aio-dev libnowait-aio0
files >/tmp/after
try "files that stayed" diff /tmp/before /tmp/after
