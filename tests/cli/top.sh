#!/bin/sh
# weft top: its screen as text, from saved expositions and from processes; processes that ended; a terminal.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

cd "$tap_tmp" || exit 1
here=$WEFT_SOURCE_ROOT/tests/cli/top
cp "$here/server.prom" "$here/worker.prom" "$here/aggregate.prom" .
one='' two=''
tap_at_exit 'kill $one $two 2>/dev/null; wait'

# ---- as text -----------------------------------------------------------------------------------

"$WEFT_BIN" top --once ./server.prom ./worker.prom ./nobody.prom >seen.txt
tap_is "it ends well" "$?" 0
tap_is "the view of two processes and of a file that does not exist" "$(cat seen.txt)" "$(cat "$here/expected.txt")"
"$WEFT_BIN" top --once ./aggregate.prom >aggregate.txt
tap_is "an aggregator, and what it saves the servers" "$(sed -n '/^AGG/,/^$/p' aggregate.txt)" \
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
weft_replica_holds_total{shard="0"} 20
weft_replica_transfers_total{shard="0"} 100
weft_replica_transfers_total{shard="1"} 100
weft_replica_bytes_total{shard="0"} 25000000
END
"$WEFT_BIN" top --once ./replicated.prom >replicated.txt
tap_is "a server with replicas: norms over its shards" "$(sed -n '/^REPLICA/,/^$/p' replicated.txt)" \
"REPLICA OF          ready diverges  highest    bound waits/s trans/s    B/s
./replicated.prom       2     0.05      0.5    0.499       2      20   2.5M"
tap_is "nothing about replicas of a server without" "$(grep -c REPLICA seen.txt)" 0
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
tap_is "a server with aggregators: what they save, and active connections" \
    "$(sed -n '/^AGGREGATION/,/^$/p' summed.txt)" \
"AGGREGATION AT         n absorb% remove% direct   sums    cpu   conns  workers
./summed.prom           2    50.0    50.0    100     50    521     1.5      5.5
(ns for an update: direct, in sums, CPU; connections, workers in a window)"
tap_is "nothing about aggregators of a server without" "$(grep -c AGGREGATION seen.txt)" 0
tap_is "80 columns at most" "$(awk 'length > 80' summed.txt)" ""
tap_is "80 columns at most" "$(awk 'length > 80' seen.txt)" ""
"$WEFT_BIN" top --once --width 120 ./server.prom ./worker.prom >wide.txt
tap_is "120 columns for whom wants them" "$(awk 'length > most {most = length} END {print (most <= 120 && most > 80)}' wide.txt)" 1

# ---- processes ---------------------------------------------------------------------------------

echo '[]' >nobody.json
python3 "$here/serve.py" server.prom nobody.json one.port & one=$!
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
tap_is "a server that answers" "$status" 0
tap_like "with its address" "$(cat seen.txt)" "^127.0.0.1:$port "
tap_is "and its hottest rows" "$(grep -A9 '^HOT ROWS' seen.txt)" "HOT ROWS OF TABLE 0   updates    share
18446744073709551615      500  50.000 %
7?[2J                     250  25.000 %
9                           1   0.100 %"

# A process that lists the others, like weft train.
sed 's/role="server"/role="train"/' server.prom >train.prom
printf '[{"targets":["127.0.0.1:%s","/etc/passwd"],"labels":{"role":"server"}}, 5]\n' "$port" >job.json
python3 "$here/serve.py" train.prom job.json two.port & two=$!
tap_until test -s two.port
tap_until shows ' 0 gone' "$(cat two.port)"
tap_like "the servers of a job are found through it" "$(cat seen.txt)" "^weft top: 1 server, 0 workers, 0 gone"
tap_until shows ' 0 gone' --targets job.json
tap_like "and through a file" "$(cat seen.txt)" "^weft top: 1 server, 0 workers, 0 gone"

if python3 -c 'import pty' 2>/dev/null; then
    tap_run "in a terminal" python3 "$here/live.py" "$WEFT_BIN" "$port"
    tap_is "that changes its size; q ends it" "$(cat run.out)" "shown
shown again in another size
exit 0"
else
    tap_skip "in a terminal" "python3 has no pty"
fi

kill "$two"
wait "$two" 2>/dev/null
"$WEFT_BIN" top --once "$port" "$(cat two.port)" >seen.txt
tap_like "who does not answer is named" "$(cat seen.txt)" "^127.0.0.1:$(cat two.port) *gone: "
kill "$one"
wait "$one" 2>/dev/null
tap_run_fails "nobody answers" 1 "$WEFT_BIN" top --once "$port"

# ---- refusals ----------------------------------------------------------------------------------

tap_run_fails "nobody named" 2 "$WEFT_BIN" top --once
tap_like "is said" "$(cat run.out)" "target is missing: the \[HOST:\]PORT"
tap_run_fails "a port that is not valid" 2 "$WEFT_BIN" top --once 70000
tap_run_fails "an address without a port" 2 "$WEFT_BIN" top --once 127.0.0.1:
echo '{}' >bad.json
tap_run_fails "a file that names nobody" 1 "$WEFT_BIN" top --once --targets bad.json
tap_run_fails "no terminal" 1 "$WEFT_BIN" top ./server.prom
tap_like "is said" "$(cat run.out)" "not a terminal; use --once"

tap_done
