#!/bin/sh
# `weft load`: its report is complete and consistent; workload files; SIGTERM. No performance
# is asserted.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

# run_json <options...>: a run's JSON in $tap_tmp/json. A process that is suspended for a whole
# short run has no requests, so the run is repeated.
run_json() {
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        rm -f "$tap_tmp/records.db"
        "$WEFT_BIN" load --seconds 0.5 --warmup 0.1 --json "$@" >"$tap_tmp/json" 2>"$tap_tmp/err" || {
            cat "$tap_tmp/err"
            return 1
        }
        ! jq -e '.rpcs > 0 and .run.requests > 0' "$tap_tmp/json" >/dev/null || return 0
        echo "# attempt $attempt has no replies"
    done
    return 1
}

complete='
    def numbers(names): [.[names[]] | type] | all(. == "number");
    (keys | sort) == (["rpcs", "rpcs_per_s", "rows_per_s", "latency_us", "breakdown_us",
        "active_connections_per_ms", "server_cpu_s", "worker_cpu_s", "server_cpu_us_per_rpc",
        "rss_mb", "records_dropped", "run"] | sort) and
    numbers(["rpcs", "rpcs_per_s", "worker_cpu_s", "rss_mb", "records_dropped"]) and
    (.rows_per_s | numbers(["push", "pull"])) and
    (.latency_us[] | numbers(["p50", "p90", "p99", "max"])) and
    (.breakdown_us[] | numbers(["W_proc", "W_queue", "PS_proc", "PS_queue", "PS_wait", "N_tx"])) and
    all(.latency_us[]; .p50 <= .p90 and .p90 <= .p99 and .p99 <= .max)'

tap_run "a short run succeeds" run_json --local 2 --workers 8 --rows 16 --dim 4
tap_run "its report is complete" jq -e "$complete" "$tap_tmp/json"
tap_run "its figures are consistent" jq -e '
    .run.loop == "closed" and .run.workers == 8 and .run.servers == 2 and .run.refused == 0 and
    .rpcs >= .run.requests and .rpcs <= 2 * (.run.requests + 16 * 8) and
    ((.rpcs_per_s * .run.seconds - .rpcs) | fabs) < 1 and
    ((.rows_per_s.push + .rows_per_s.pull) * .run.seconds / 16 - .run.requests | fabs) < 1 and
    .server_cpu_s > 0 and .worker_cpu_s > 0 and .rss_mb > 1 and
    ((.server_cpu_us_per_rpc * .rpcs / 1e6 - .server_cpu_s) | fabs) < 1e-6 and
    .active_connections_per_ms.p50 >= 1 and .active_connections_per_ms.p99 <= 8' "$tap_tmp/json"

tap_run "a run of requests without rows succeeds" run_json --local 1 --workers 4 --rows 0
tap_run "each request is one RPC" jq -e "$complete"' and .latency_us.push.max == 0 and
    .rows_per_s == {"push": 0, "pull": 0} and .run.requests <= .rpcs and
    .rpcs <= .run.requests + 16 * 4 and .breakdown_us.pull.N_tx > 0' "$tap_tmp/json"

tap_run "a run over TCP succeeds" run_json --local 1 --workers 4 --rows 16 --dim 4 --transport tcp
tap_run "its report is complete" jq -e "$complete"' and .run.transport == "tcp"' "$tap_tmp/json"

# An open loop loses no request: those that were due have replies, or are counted as missing. The
# number of due requests follows from the clock; the test and the load may have been suspended.
tap_run "a run with --rate succeeds" run_json --local 1 --workers 4 --rows 4 --dim 4 --rate 400 --seconds 1 --mix 3:1
tap_run "the report says that it is an open loop" jq -e "$complete"' and .run.loop == "open" and
    .run.rate == 400 and (.run.requests > 0) and (.run.unanswered >= 0)' "$tap_tmp/json"

# ---- records -------------------------------------------------------------------------------------

tap_run "a run with --records succeeds" run_json --local 2 --workers 4 --rows 8 --dim 4 --records "$tap_tmp/records.db"
tap_run "no record was dropped" jq -e "$complete"' and .records_dropped == 0' "$tap_tmp/json"
tap_run "weft trace summary reads the records" "$WEFT_BIN" trace summary "$tap_tmp/records.db"
tap_like "they have the run's workers and servers" "$(cat "$tap_tmp/run.out")" 'of 4 workers to 2 servers'
# A file name with a special meaning for SQLite.
tap_run "--records :memory: succeeds" sh -c "cd '$tap_tmp' && exec '$WEFT_BIN' load --local 1 --workers 1 \
    --seconds 0.1 --warmup 0 --records :memory:"
tap_run "the records are in a file of that name" "$WEFT_BIN" trace summary "$tap_tmp/:memory:"
tap_run_fails "--records in a directory that does not exist: exit status 1" 1 "$WEFT_BIN" load --local 1 --workers 1 \
    --seconds 0.1 --records "$tap_tmp/none/records.db"

# ---- running servers -----------------------------------------------------------------------------

# wait_for <file> <regular expression> <pid>: false if the process ends without a match.
wait_for() {
    while ! grep -q "$2" "$1"; do
        kill -0 "$3" 2>/dev/null || return 1
        sleep 0.05
    done
}

# A process that is suspended for seconds must not be declared dead.
patient=--start-timeout=120
"$WEFT_BIN" server --port 0 --workers 4 --security none >"$tap_tmp/server.out" 2>&1 &
server=$!
if wait_for "$tap_tmp/server.out" '127\.0\.0\.1:[0-9]' $server; then
    address=$(sed -n 's/.*\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$tap_tmp/server.out" | head -n 1)
    tap_run "a run with running servers succeeds" run_json --servers "$address" "$patient" --server-pid $server --security none \
        --workers 4 --rows 8 --dim 4
    tap_run "the report has the CPU time of --server-pid" jq -e "$complete"' and .server_cpu_s > 0 and
        .active_connections_per_ms == {"p50": null, "p99": null}' "$tap_tmp/json"
    "$WEFT_BIN" load --print-workload --local 3 --rows 8 --dim 4 >"$tap_tmp/for-local"
    tap_run "--servers with a workload file for --local succeeds" run_json --workload "$tap_tmp/for-local" \
        --servers "$address" "$patient" --security none --workers 4
    tap_run "--servers replaces the local shards" jq -e '.run.servers == 1 and .run.rows == 8' "$tap_tmp/json"
    tap_run "a run without --server-pid succeeds" run_json --servers "$address" "$patient" --security none --workers 4 --rows 8 --dim 4
    tap_run "the report has no CPU time of the servers" jq -e '.server_cpu_s == null and .server_cpu_us_per_rpc == null' \
        "$tap_tmp/json"
else
    tap_fail "a run with running servers succeeds" "$(cat "$tap_tmp/server.out")"
fi
kill $server
wait $server

# A server that hangs is detected after --peer-timeout, long before the load's end.
for transport in weft tcp; do
    rm -f "$tap_tmp/server.out" "$tap_tmp/hung"
    "$WEFT_BIN" server --port 0 --workers 2 --security none --transport $transport \
        >"$tap_tmp/server.out" 2>&1 &
    server=$!
    tap_at_exit 'kill -CONT $server; kill $server $load 2>/dev/null; wait'
    tap_until grep -q '127\.0\.0\.1:[0-9]' "$tap_tmp/server.out"
    address=$(sed -n 's/.*\(127\.0\.0\.1:[0-9]*\).*/\1/p' "$tap_tmp/server.out" | head -n 1)
    "$WEFT_BIN" load --servers "$address" "$patient" --security none --transport $transport \
        --workers 2 --rows 8 --dim 4 --seconds 45 --peer-timeout 1 >"$tap_tmp/hung" 2>&1 &
    load=$!
    tap_until grep -q 'measuring' "$tap_tmp/hung"
    kill -STOP $server
    wait $load
    tap_is "a frozen server ends the run, over $transport" $? 1
    tap_like "after --peer-timeout, over $transport" "$(cat "$tap_tmp/hung")" 'not answered for 1 s'
    kill -CONT $server
    kill $server
    wait $server
done
for transport in weft tcp; do
    tap_patient "without a server, over $transport, the error says what to do" 1 \
        'reached after [0-9]* s: nothing listens at 127.0.0.1:1: start the program there first' \
        "$WEFT_BIN" load --servers 127.0.0.1:1 --workers 2 --security none --transport $transport \
        --start-timeout
done

# ---- through aggregators -------------------------------------------------------------------------

rm -f "$tap_tmp/server.out"
"$WEFT_BIN" server --port 0 --workers 4 --security none >"$tap_tmp/server.out" 2>&1 &
server=$!
if wait_for "$tap_tmp/server.out" '127\.0\.0\.1:[0-9]' $server; then
    address=$(sed -n 's/^shard 0.*: \(127\.0\.0\.1:[0-9]*\)$/\1/p' "$tap_tmp/server.out")
    for number in 0 1; do
        "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --servers "$address" --number $number --workers 4 \
            --security none --flush-age-us 2000 --flush-by-age --json >"$tap_tmp/box$number" 2>&1 &
        eval "box$number=$!"
        wait_for "$tap_tmp/box$number" '^shard 0: ' $!
    done
    via() {
        sed -n 's/^shard 0: //p' "$tap_tmp/box$1"
    }
    tap_run "a run through two aggregators succeeds" run_json --servers "$address" "$patient" \
        --security none --workers 4 --rows 8 --dim 4 --mix 1:0 --in-flight 4 --seconds 1 --warmup 1 \
        --via "$(via 0)" --via "$(via 1)"
    tap_run "the aggregators committed pushes, and no request was rejected" jq -e "$complete"' and .run.aggregators == 2 and .run.refused == 0 and
        .run.via.pushes > 0 and .run.via.committed > 0' "$tap_tmp/json"
    tap_run "a run without --via and with --eviction none uses the same table" run_json --servers "$address" \
        "$patient" --security none --workers 4 --rows 8 --dim 4 --eviction none
    tap_run "it sent no pushes through aggregators" jq -e '.run.aggregators == 0 and .run.via.pushes == 0' "$tap_tmp/json"
    kill "$box0" "$box1"
    wait "$box0"
    wait "$box1"
    for number in 0 1; do
        tap_run "aggregator $number absorbed pushes; sums were flushed by age, none as complete" \
            sh -c "sed '/^shard/d' '$tap_tmp/box$number' | jq -e '.pushes_absorbed > 0 and
                .flushed_complete == 0 and .flushed_age > 0'"
    done
else
    tap_fail "a run through two aggregators succeeds" "$(cat "$tap_tmp/server.out")"
fi
kill $server
wait $server

# ---- SIGTERM -------------------------------------------------------------------------------------

"$WEFT_BIN" load --local 1 --workers 4 --rows 4 --dim 4 --seconds 600 --warmup 0 --json \
    >"$tap_tmp/early.json" 2>"$tap_tmp/early.err" &
load=$!
wait_for "$tap_tmp/early.err" '^measuring' $load
kill -TERM $load
wait $load
tap_is "SIGTERM: exit status 0" $? 0
tap_run "the report is complete until then" jq -e "$complete"' and .run.interrupted and .run.seconds < 600' \
    "$tap_tmp/early.json"

# ---- workload files ------------------------------------------------------------------------------

tap_run "--print-workload succeeds" "$WEFT_BIN" load --print-workload --scale S3 --rows 7 --mix 2:5 \
    --eviction none --zipf-top 300:0.7 --keys 12345 --rate 12.5 --id-bits 32 --seed 9 --seconds 0.25
cp "$tap_tmp/run.out" "$tap_tmp/workload"
tap_run "the printed workload can be read" "$WEFT_BIN" load --workload "$tap_tmp/workload" --print-workload
tap_is "it is printed unchanged" "$(cat "$tap_tmp/run.out")" "$(cat "$tap_tmp/workload")"
tap_like "--scale is printed as workers and shards" "$(tr '\n' ' ' <"$tap_tmp/workload")" \
    'local = 40 workers = 160 rows = 7'
tap_like "options have precedence over the file" \
    "$("$WEFT_BIN" load --rows 9 --workload="$tap_tmp/workload" --print-workload)" '^rows = 9$'

bad_file() { # bad_file <name> <expected message> <line>
    printf 'rows = 3 # fine\n\n%s\n' "$3" >"$tap_tmp/bad"
    tap_run_fails "$1" 2 "$WEFT_BIN" load --workload "$tap_tmp/bad" --print-workload
    tap_like "$1: the error names the line" "$(cat "$tap_tmp/run.out")" "$2"
}
bad_file "an unknown key" 'bad line 3: unknown key "rowz"' "rowz = 3"
bad_file "an option that is not part of a workload" 'unknown key "security"' "security = none"
bad_file "an invalid line" 'line 3 is not' "rows"
bad_file "an invalid value" 'line 3' "rows = many"
tap_run_fails "a missing workload file: exit status 1" 1 "$WEFT_BIN" load --workload "$tap_tmp/none" --print-workload

# ---- options -------------------------------------------------------------------------------------

refused() { # refused <name> <expected message> <options...>
    name=$1
    message=$2
    shift 2
    tap_run_fails "$name" 2 "$WEFT_BIN" load "$@"
    tap_like "$name: the error says why" "$(cat "$tap_tmp/run.out")" "$message"
}
refused "no servers" "--servers or --local is missing" --workers 2
refused "--servers and --local" "mutually exclusive" --servers 127.0.0.1:1 --local 1
refused "an invalid --servers" "HOST:PORT" --servers nowhere
refused "--mix 0:0" "PUSH:PULL" --local 1 --mix 0:0
refused "a share of popular keys below the uniform one" "cannot be combined with" --local 1 --zipf-top 100:0.01 --keys 1000
refused "more popular keys than keys" "cannot be combined with" --local 1 --zipf-top 100:0.5 --keys 50
refused "--via with --local" "requires --servers" --local 1 --via 127.0.0.1:7800
refused "an invalid --via" 'via "nowhere" is not allowed' --servers 127.0.0.1:1 --via nowhere
refused "--eviction lru with --via" "eviction lru cannot be combined with --via" --servers 127.0.0.1:1 \
    --via 127.0.0.1:7800 --eviction lru
refused "an unknown --eviction" "lru" --local 1 --eviction oldest
refused "an unknown --scale" "S1" --scale S7
refused "too many workers" "1 to 1000" --local 1 --workers 1001
tap_done
