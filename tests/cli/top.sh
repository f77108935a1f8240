#!/bin/sh
# weft top: its screen as text, from files of metrics and from processes; processes that ended; a terminal.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

cd "$tap_tmp" || exit 1
here=$WEFT_SOURCE_ROOT/tests/cli/top
cp "$here/server.prom" "$here/worker.prom" "$here/aggregate.prom" .
one='' two='' three='' four='' five=''
tap_at_exit 'kill $one $two $three $four $five 2>/dev/null; wait'

# ---- as text -----------------------------------------------------------------------------------

"$WEFT_BIN" top --once ./server.prom ./worker.prom ./nobody.prom >seen.txt
tap_is "weft top --once exits with 0" "$?" 0
tap_is "two processes and a missing file are shown as expected" "$(cat seen.txt)" "$(cat "$here/expected.txt")"
"$WEFT_BIN" top --once ./aggregate.prom >aggregate.txt
tap_is "an aggregator and its savings are shown" "$(sed -n '/^AGG/,/^$/p' aggregate.txt)" \
"AGGREGATOR         shards workers push/s pull/s rows/s saved% direct cpu%    mem
./aggregate.prom        2       4    400      2    20k     60      1   50    50M"
cat server.prom - >replicated.prom <<'END'
weft_replica_ready{shard="0"} 1
weft_replica_ready{shard="1"} 1
weft_replica_divergence{shard="0"} 0.03
weft_replica_divergence{shard="1"} 0.04
weft_replica_divergence_max{shard="0"} 0.3
weft_replica_divergence_max{shard="1"} 0.4
weft_replica_divergence_bound{shard="0"} 0.353
weft_replica_divergence_bound{shard="1"} 0.353
weft_replica_reply_delays_total{shard="0"} 20
weft_replica_transfers_total{shard="0"} 100
weft_replica_transfers_total{shard="1"} 100
weft_replica_bytes_total{shard="0"} 25000000
END
"$WEFT_BIN" top --once ./replicated.prom >replicated.txt
tap_is "replicas are shown with norms over the shards" "$(sed -n '/^REPLICA/,/^$/p' replicated.txt)" \
"REPLICA OF          ready diverges  highest    bound waits/s trans/s    B/s
./replicated.prom       2     0.05      0.5    0.499       2      20   2.5M"
tap_is "a server without replicas has no section about them" "$(grep -c REPLICA seen.txt)" 0
cat server.prom - >summed.prom <<'END'
weft_aggregators_connected{shard="0"} 1
weft_aggregators_connected{shard="1"} 1
weft_aggregates_total{shard="0"} 2000
weft_aggregate_pushes_total{shard="0"} 14170
weft_aggregate_updates_total{shard="0"} 16000000
weft_aggregate_rows_total{shard="0"} 4000000
weft_push_processing_seconds_total{shard="0",path="direct"} 0.8
weft_push_processing_seconds_total{shard="0",path="aggregated"} 0.8
weft_active_windows_total{shard="0"} 1000
weft_active_workers_total{shard="0"} 5500
weft_active_connections_total{shard="0"} 1500
END
"$WEFT_BIN" top --once ./summed.prom >summed.txt
tap_is "aggregators are shown with their savings and active connections" \
    "$(sed -n '/^AGGREGATION/,/^$/p' summed.txt)" \
"AGGREGATION AT         n absorb% remove% direct   sums    cpu   conns  workers
./summed.prom           2    50.0    50.0    100     50    521     1.5      5.5
(ns for an update: direct, in sums, CPU; connections, workers in a window)"
# Nobody listens on port 1 of these addresses.
seq 1 130 | jq -sc '[{targets: map("127.93.7.\(.):1")}]' >many.json
tap_is "targets beyond the maximum are counted" "$("$WEFT_BIN" top --once --targets many.json | sed -n 1,2p)" \
"weft top: 0 servers, 0 workers, 128 gone; rates since the processes started
2 more targets are not shown; the maximum is 128"
tap_is "a server without aggregators has no section about them" "$(grep -c AGGREGATION seen.txt)" 0
tap_is "with aggregators no line is longer than 80 columns" "$(awk 'length > 80' summed.txt)" ""
tap_is "no line is longer than 80 columns" "$(awk 'length > 80' seen.txt)" ""
"$WEFT_BIN" top --once --width 120 ./server.prom ./worker.prom >wide.txt
tap_is "--width 120 uses more than 80 columns" "$(awk 'length > most {most = length} END {print (most <= 120 && most > 80)}' wide.txt)" 1

# ---- processes ---------------------------------------------------------------------------------

echo '[]' >empty.json
python3 "$here/serve.py" server.prom empty.json one.port & one=$!
tap_until test -s one.port
port=$(cat one.port)
# shows <line> <argument...>: true if the screen, saved in seen.txt, has the line; a process without
# a reply for 5 s counts as gone.
shows() {
    line=$1
    shift
    "$WEFT_BIN" top --once "$@" >seen.txt
    status=$?
    grep -q "$line" seen.txt
}
tap_until shows '^9  *1 ' "$port"
tap_is "with a server that replies the exit status is 0" "$status" 0
tap_like "the server is shown with its address" "$(cat seen.txt)" "^127.0.0.1:$port "
tap_is "its hottest rows are shown" "$(grep -A9 '^HOT ROWS' seen.txt)" "HOT ROWS OF TABLE 0   updates    share
18446744073709551615      500  50.000 %
7?[2J                     250  25.000 %
9                           1   0.100 %"

# A process that lists the others, like weft train.
sed 's/role="server"/role="train"/' server.prom >train.prom
printf '[{"targets":["127.0.0.1:%s","/etc/passwd"],"labels":{"role":"server"}}, 5]\n' "$port" >job.json
python3 "$here/serve.py" train.prom job.json two.port & two=$!
tap_until test -s two.port
tap_until shows ' 0 gone' "$(cat two.port)"
tap_like "the servers of a job are found through /targets" "$(cat seen.txt)" "^weft top: 1 server, 0 workers, 0 gone"
tap_until shows ' 0 gone' --targets job.json
tap_like "and through --targets" "$(cat seen.txt)" "^weft top: 1 server, 0 workers, 0 gone"

cp many.json job.json
python3 "$here/serve.py" train.prom job.json three.port & three=$!
tap_until test -s three.port
tap_until shows '126 gone' "$(cat two.port)" "$(cat three.port)" --targets many.json
tap_is "a target beyond the maximum that is in several lists counts once" "$(sed -n 2p seen.txt)" \
"4 more targets are not shown; the maximum is 128"
kill "$three"
wait "$three" 2>/dev/null

if python3 -c 'import pty' 2>/dev/null; then
    tap_run "weft top runs in a terminal" python3 "$here/live.py" "$WEFT_BIN" "$port"
    tap_is "it redraws when the size changes, and q ends it" "$(cat run.out)" "shown
shown again in another size
exit 0"
else
    tap_skip "weft top runs in a terminal" "python3 has no pty"
fi

tap_run "a process that is named by two addresses succeeds" "$WEFT_BIN" top --once "127.0.0.1:$port" "127.1:$port"
tap_like "it is one process" "$(cat run.out)" "^weft top: 1 server, 0 workers, 0 gone"

# A process that does not reply makes each scrape last for 5 s; a signal or a key ends it.
python3 "$here/silent.py" silent.port connections & four=$!
tap_until test -s silent.port
silent=$(seq 1 30 | sed "s/.*/127.0.0.&:$(cat silent.port)/")
# shellcheck disable=SC2086 # words
"$WEFT_BIN" top --once $silent >ended.txt 2>&1 & five=$!
tap_until test -s connections
kill -TERM "$five"
wait "$five"
tap_is "SIGTERM ends --once during a scrape of 30 processes that do not reply" "$(wc -l <connections)" 1
if python3 -c 'import pty' 2>/dev/null; then
    rm connections
    # shellcheck disable=SC2086
    tap_run "q ends weft top during such a scrape" python3 "$here/quit.py" connections "$WEFT_BIN" top $silent
    tap_is "its exit status is 0, after one connection" "$(cat run.out) $(wc -l <connections)" "exit 0 1"
else
    tap_skip "q ends weft top during such a scrape" "python3 has no pty"
    tap_skip "its exit status is 0, after one connection" "python3 has no pty"
fi
kill "$four"
wait "$four" 2>/dev/null

kill "$two"
wait "$two" 2>/dev/null
"$WEFT_BIN" top --once "$port" "$(cat two.port)" >seen.txt
tap_like "a process that does not reply is shown as gone" "$(cat seen.txt)" "^127.0.0.1:$(cat two.port) *gone: "
kill "$one"
wait "$one" 2>/dev/null
tap_run_fails "no process replies: exit status 1" 1 "$WEFT_BIN" top --once "$port"

# ---- usage errors ------------------------------------------------------------------------------

tap_run_fails "no target: usage error" 2 "$WEFT_BIN" top --once
tap_like "the error says so" "$(cat run.out)" "target is missing: the \[HOST:\]PORT"
tap_run_fails "an invalid port: usage error" 2 "$WEFT_BIN" top --once 70000
tap_run_fails "an address without a port: usage error" 2 "$WEFT_BIN" top --once 127.0.0.1:
echo '{}' >bad.json
tap_run_fails "a file without targets: exit status 1" 1 "$WEFT_BIN" top --once --targets bad.json
tap_run_fails "no terminal: exit status 1" 1 "$WEFT_BIN" top ./server.prom
tap_like "the error names --once" "$(cat run.out)" "not a terminal; use --once"

tap_done
