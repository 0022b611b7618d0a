#!/usr/bin/env bash
# One nginx with four ways to read files, under wrk and h2load.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: bench/nginx/run.sh DIR

Compares four configurations of nginx with one worker process each: plain, sendfile, aio threads, and the module of
examples/nginx. Prints medians over the rounds, with the smallest and the largest value.

  cached     requests a second for 200 cached files of 16 KiB: wrk with 32 connections, and h2load (HTTP/2)
  mixed      p50 and p99 of the same requests with 8 connections, while 16 other connections read ranges of
             64 KiB that are not cached

DIR is for the files: a filesystem on a real disk, with 3 GiB free. Needs root, nginx, nginx-dev, wrk, h2load
(package nghttp2-client) and openssl. `make build` builds the C library first.

environment: ROUNDS (5), SECONDS_EACH (3), TLS (1; 0: without), COLD_MIB (2048)
USAGE
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    "" | -*) usage >&2; exit 2 ;;
esac
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-3} tls=${TLS:-1} cold_mib=${COLD_MIB:-2048}
project=$(cd "$(dirname "$0")/../.." && pwd)
for program in nginx wrk h2load openssl; do
    command -v $program >/dev/null || { echo "run: $program is missing" >&2; exit 1; }
done
mkdir -p "$1"
dir=$(mktemp -d "$(cd "$1" && pwd)/nginx-XXXXXX")
chmod 755 "$dir"
configurations=(plain sendfile aio nowait)

finish() {
    for configuration in "${configurations[@]}"; do
        if [[ -s $dir/$configuration.pid ]]; then kill "$(cat "$dir/$configuration.pid")" || true; fi
    done
    rm -rf "$dir"
}
trap finish EXIT

# The installed tree, the module, the files.
"$project/scripts/install.sh" "$dir/installed" >"$dir/install.log" || { cat "$dir/install.log" >&2; exit 1; }
pc=$(dirname "$(find "$dir/installed" -name nowait.pc)")
PKG_CONFIG_PATH=$pc "$project/examples/nginx/build.sh" "$dir/module" >/dev/null
export LD_LIBRARY_PATH=${pc%/pkgconfig}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
mkdir "$dir/root"
for i in {0..199}; do head -c 16384 /dev/urandom >"$dir/root/hot$i"; done
head -c "${cold_mib}M" /dev/urandom >"$dir/root/cold"
sync "$dir/root/cold"

port() {
    case $1 in plain) echo 18441 ;; sendfile) echo 18442 ;; aio) echo 18443 ;; nowait) echo 18444 ;; esac
}
scheme=http listen=""
if ((tls)); then scheme=https listen="ssl http2"; fi
for configuration in "${configurations[@]}"; do
    module="" reads=""
    case $configuration in
        plain) reads="sendfile off; aio off;" ;;
        sendfile) reads="sendfile on; aio off;" ;;
        aio) reads="sendfile off; aio threads;" ;;
        nowait) reads="sendfile off; aio off; nowait on;" module="load_module $dir/module/ngx_http_nowait_module.so;" ;;
    esac
    cat >"$dir/$configuration.conf" <<CONF
$module
user root;
worker_processes 1;
pid $dir/$configuration.pid;
error_log $dir/$configuration.log;
events { worker_connections 512; }
http {
    access_log off;
    keepalive_requests 100000000;
    open_file_cache max=1000;
    $reads
    server {
        listen 127.0.0.1:$(port "$configuration") $listen;
        ssl_certificate $dir/cert.pem;
        ssl_certificate_key $dir/key.pem;
        root $dir/root;
    }
}
CONF
    nginx -p "$dir" -c "$dir/$configuration.conf" -e "$dir/$configuration.log"
done

cat >"$dir/hot.lua" <<'LUA'
request = function() return wrk.format("GET", "/hot" .. math.random(0, 199)) end
done = function(summary, latency)
    if summary.errors.status + summary.errors.connect + summary.errors.read > 0 then error("requests failed") end
    io.write(string.format("\nresult %d %d %.0f\n", latency:percentile(50), latency:percentile(99),
        summary.requests / summary.duration * 1e6))
end
LUA
cat >"$dir/cold.lua" <<LUA
math.randomseed(os.time())
request = function()
    local offset = math.random(0, $cold_mib * 16 - 1) * 65536
    return wrk.format("GET", "/cold", { Range = "bytes=" .. offset .. "-" .. (offset + 65535) })
end
done = function(summary, latency) io.write(string.format("\nresult %.0f\n", summary.requests / summary.duration * 1e6)) end
LUA

declare -a lines=()
record() { lines+=("$1 $2 $3"); }
load() { wrk -t1 "$@" | awk '$1 == "result" { $1 = ""; print }'; }

for ((round = 0; round < rounds; round++)); do
    for ((i = 0; i < 4; i++)); do
        configuration=${configurations[(round + i) % 4]}
        url=$scheme://127.0.0.1:$(port "$configuration")
        cat "$dir"/root/hot* >/dev/null
        read -r _ _ rate <<<"$(load -c32 -d"${seconds}s" -s "$dir/hot.lua" "$url")"
        record "cached, requests/s (wrk)" "$configuration" "$rate"
        if ((tls)); then
            rate=$(h2load -t1 -c8 -m16 -D "$seconds" "$url/hot1" | awk '/^finished in/ { print int($4) }')
            record "cached, requests/s (h2load)" "$configuration" "$rate"
        fi
        # Nothing of the cold file is cached, and its pages are clean.
        dd of="$dir/root/cold" oflag=nocache conv=notrunc,fdatasync count=0 status=none
        load -c16 -d"$((seconds + 1))s" -s "$dir/cold.lua" "$url" >"$dir/cold.result" &
        cold=$!
        sleep 0.5
        read -r p50 p99 rate <<<"$(load -c8 -d"${seconds}s" -s "$dir/hot.lua" "$url")"
        wait $cold
        record "mixed, p50 of cached, us" "$configuration" "$p50"
        record "mixed, p99 of cached, us" "$configuration" "$p99"
        record "mixed, cached requests/s" "$configuration" "$rate"
        record "mixed, cold requests/s" "$configuration" "$(tr -d ' ' <"$dir/cold.result")"
        echo "round $((round + 1)) of $rounds: $configuration" >&2
    done
done

printf '%s\n' "${lines[@]}" | sort -s -k1,1 | awk '
    {
        configuration = $(NF - 1); value = $NF
        cell = $0; sub(/ [a-z]+ [0-9]+$/, "", cell)
        if (!(cell in seen)) { seen[cell] = 1; cells[++n] = cell }
        key = cell SUBSEP configuration
        values[key, ++count[key]] = value
    }
    function show(key,    i, j, k, sorted, t) {
        k = count[key]
        for (i = 1; i <= k; i++) sorted[i] = values[key, i]
        for (i = 2; i <= k; i++)
            for (j = i; j > 1 && sorted[j - 1] + 0 > sorted[j] + 0; j--) { t = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = t }
        return sprintf("%d (%d-%d)", sorted[int((k + 1) / 2)], sorted[1], sorted[k])
    }
    END {
        split("plain sendfile aio nowait", order, " ")
        printf "%-28s", ""
        for (i = 1; i <= 4; i++) printf "  %22s", order[i]
        print ""
        for (c = 1; c <= n; c++) {
            printf "%-28s", cells[c]
            for (i = 1; i <= 4; i++) printf "  %22s", show(cells[c] SUBSEP order[i])
            print ""
        }
    }'
