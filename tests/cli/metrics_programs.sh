#!/bin/sh
# /metrics of programs that use the library: workers of `weft run` serve them and are listed in its
# /targets, also the replacement of a dead worker; a failure to serve them stops no program. The program
# is tests/cli/tally.c; it waits in the library for permission to continue, so its state is known.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB DMLC_ROLE
unset DMLC_RANK RANK WORLD_SIZE WEFT_METRICS WEFT_METRICS_TARGETS
check=$WEFT_SOURCE_ROOT/tests/cli/metrics_check.py
run='' other=''
tap_at_exit 'kill $run $other 2>/dev/null; wait'

fetch() { # fetch <url>, without a program of weft
    python3 -c 'import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())' "$1"
}

# at_least <n> <url> <name> [label=value]: one scrape, kept in scrape.txt
at_least() {
    least=$1 url=$2
    shift 2
    fetch "$url" >scrape.txt && python3 "$check" value scrape.txt "$@" >value.txt &&
        [ "$(cut -d. -f1 value.txt)" -ge "$least" ]
}

# ---- a job whose second worker dies --------------------------------------------------------------

mkdir work
TALLY_HOLD=4 TALLY_DIE="1 2" "$WEFT_BIN" run --metrics 0 --restart 1 --peer-timeout 120 -n 2 -s 1 -- \
    "$WEFT_TALLY_BIN" work work 5 >run.out 2>run.err &
run=$!
tap_run "a job serves metrics" tap_until grep -q '^weft run: metrics: ' run.err
at=$(sed -n 's/^weft run: metrics: http:\/\///p' run.err)
at=${at%/metrics}
tap_run "each worker prints the address of its metrics, also the one that replaced a dead one" \
    tap_until tap_lines 3 '^\[worker [01]\] weft: worker [01]: metrics: http://127\.0\.0\.1:[0-9]*/metrics$' run.err
fetch "http://$at/targets" >targets.json
tap_run "/targets lists each process of the job" jq -e 'map(.labels.role + .labels.rank) ==
    ["coordinator0", "server0", "worker0", "worker1"]' targets.json
for rank in 0 1; do
    sed -n "s/^\[worker $rank\] weft: worker $rank: metrics: http:\/\/\(.*\)\/metrics/\1/p" run.err |
        tail -n 1
done >printed.txt
tap_is "/targets has the addresses that the workers printed last" "$(jq -r '.[2:][].targets[0]' targets.json)" \
    "$(cat printed.txt)"
first=http://$(head -n 1 printed.txt)
tap_run "a worker counts its pushes" tap_until at_least 4 "$first/metrics" weft_client_messages_total kind=push
tap_run "a worker counts its steps" tap_until at_least 2 "$first/metrics" weft_step_seconds_count
cp scrape.txt program.txt
tap_is "a worker's metrics have its rank" "$(python3 "$check" value program.txt weft_worker_rank)" 0
tap_run "they have the Prometheus format" python3 "$check" format program.txt
if command -v promtool >/dev/null; then
    tap_run "promtool accepts the text" promtool check metrics <program.txt
    tap_is "without a warning" "$(cat run.out)" ""
else
    tap_skip "promtool" "no promtool: install prometheus"
fi
found() {
    "$WEFT_BIN" top --once "$at" >top.txt
    grep -q "$1" top.txt
}
tap_run "weft top shows the whole job" tap_until found "^weft top: 1 server, 2 workers, 0 gone"
# A hundred requests at once, an unknown page, and a client that sends half a request.
tap_run "a hundred concurrent scrapes are answered beside a client that sent half a request" python3 -c '
import concurrent.futures, socket, sys, urllib.error, urllib.request
host, port = sys.argv[1][7:].split(":")
stuck = socket.create_connection((host, int(port)))
stuck.sendall(b"GET /met")
def scrape(_):
    return b"weft_worker_rank 0\n" in urllib.request.urlopen(sys.argv[1] + "/metrics", timeout=120).read()
with concurrent.futures.ThreadPoolExecutor(100) as pool:
    assert all(pool.map(scrape, range(100)))
try:
    urllib.request.urlopen(sys.argv[1] + "/hot", timeout=120)
except urllib.error.HTTPError as error:
    assert error.code == 404
else:
    sys.exit("/hot of a worker")
' "$first"
: >work/go
wait "$run"
tap_is "the job exits with 0" "$?" 0
run=''
tap_run "every push counts once" "$WEFT_TALLY_BIN" check work 2 5 1

# ---- addresses that cannot be served -------------------------------------------------------------

"$WEFT_BIN" coordinator --security none --port 0 --workers 1 --shards 1 --metrics 0 >other.out 2>&1 &
other=$!
tap_run "another process listens at a port" tap_until grep -q '^metrics: ' other.out
taken=$(sed -n 's/^metrics: http:\/\/127.0.0.1:\([0-9]*\)\/metrics/\1/p' other.out)
mkdir busy
tap_run "a worker whose metrics port is in use trains without metrics" env WEFT_METRICS="$taken" "$WEFT_BIN" run \
    --peer-timeout 120 -n 1 -s 1 -- "$WEFT_TALLY_BIN" work busy 3
tap_like "it prints a warning" "$(cat run.out)" \
    "worker 0: metrics: cannot listen at 127.0.0.1 port $taken: .*; continuing without metrics"
tap_run_fails "an invalid WEFT_METRICS is rejected" 1 env WEFT_METRICS=here WEFT_SERVERS=127.0.0.1:1 "$WEFT_TALLY_BIN" \
    work busy 3
tap_like "the error has its value" "$(cat run.out)" 'WEFT_METRICS is "here"; it must be PORT or HOST:PORT'

# ---- weft worker ---------------------------------------------------------------------------------

"$WEFT_BIN" run --metrics 0 --peer-timeout 120 -n 1 -s 1 -- "$WEFT_BIN" worker --epochs 10000 \
    --peer-timeout 120 >run2.out 2>run2.err &
run=$!
tap_run "a job of weft worker serves metrics" tap_until grep -q '^weft run: metrics: ' run2.err
at=$(sed -n 's/^weft run: metrics: http:\/\///p' run2.err)
at=${at%/metrics}
tap_run "weft top shows it" tap_until found "^weft top: 1 server, 1 worker, 0 gone"
kill "$run"
wait "$run" 2>/dev/null
run=''

tap_done
