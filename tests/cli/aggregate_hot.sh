#!/bin/sh
# `--hot-rows`: servers select the rows with the most updates; workers send these through an aggregator and all
# others to the servers. Also usage errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB WEFT_VIA
tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY

port_of() {
    sed -n 's/^shard 0.*:\([0-9]*\)$/\1/p' "$1"
}

# figure <name> <file>
figure() {
    sed -n "s/.*\"$1\":[[:space:]]*\([0-9]*\).*/\1/p" "$2"
}

# job <hot rows of the server> <of the workers>: two workers, from start to end; server.out, aggregate.out.
job() {
    rm -f server.out aggregate.out
    "$WEFT_BIN" server --port 0 --workers 2 --hot-rows "$1" --hot-epoch-ms 20 >server.out \
        2>server.err &
    server=$!
    tap_until tap_lines 1 '^shard .*:' server.out
    "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 2 --json --flush-age-us 20000 \
        --servers "127.0.0.1:$(port_of server.out)" >aggregate.out 2>aggregate.err &
    aggregator=$!
    tap_until tap_lines 1 '^shard .*:' aggregate.out
    for rank in 0 1; do
        "$WEFT_BIN" worker --servers "127.0.0.1:$(port_of server.out)" --workers 2 --rank "$rank" \
            --via "127.0.0.1:$(port_of aggregate.out)" --epochs 6 --batch 64 --hot-rows "$2" \
            >"$rank.out" 2>"$rank.err" &
        eval "worker$rank=\$!"
    done
    wait "$worker0"
    tap_is "hot rows $1 and $2: the first worker exits with 0" $? 0
    wait "$worker1"
    tap_is "hot rows $1 and $2: the second worker exits with 0" $? 0
    kill "$aggregator"
    wait "$aggregator"
    kill "$server"
    wait "$server"
}

job 20 20
tap_is "the server selected hot rows" "$(($(figure shard_hot_epochs server.out) > 0))" 1
tap_is "the server counted updates of hot rows" "$(($(figure shard_hot_updates server.out) > 1000))" 1
tap_is "fewer than all updates" \
    "$(($(figure shard_hot_updates server.out) < $(figure shard_hot_updates_of server.out)))" 1
split=$(figure rows_in aggregate.out)
tap_is "hot rows were sent through the aggregator" "$((split > 1000))" 1
job 0 20
tap_is "a server without --hot-rows selects no hot rows" "$(figure shard_hot_epochs server.out)" 0
tap_is "without hot rows more rows are sent through the aggregator" \
    "$(($(figure rows_in aggregate.out) > split))" 1
job 20 10
tap_is "a worker with fewer --hot-rows sends all rows through the aggregator" "$(($(figure rows_in aggregate.out) > split))" 1

# A server that tracks no rows, because it has neither --hot-rows nor --hot-top.
"$WEFT_BIN" server --port 0 --workers 1 --hot-top 0 --metrics 0 >server.out 2>server.err &
server=$!
tap_until grep -q '^metrics: ' server.out
tap_run "a job with a server with --hot-top 0 succeeds" "$WEFT_BIN" worker --servers "127.0.0.1:$(port_of server.out)" \
    --workers 1 --epochs 1 --batch 256
python3 -c 'import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())' \
    "$(sed -n 's/^metrics: \(.*\)metrics$/\1/p' server.out)hot?table=0&k=5" >hot.json
tap_run "/hot of that server lists no rows" jq -e '.is_declared and .rows == []' hot.json
kill "$server"
wait "$server"

# ---- weft train ----------------------------------------------------------------------------------

tap_run "weft train --hot-rows succeeds" "$WEFT_BIN" train --via on --hot-rows 20 --workers 3 --servers 2 --epochs 40 \
    --loss-bound 0 --report hot.json
tap_run "pushes are split into hot and other rows, and the AUC is above 0.90" \
    jq -e '.counters.client_rows_hot > 1000 and .counters.client_rows_cold > 1000 and
           .counters.client_hot_epochs > 0 and .test_auc > 0.90 and .delivered_fraction == 1' hot.json

"$WEFT_BIN" train --hot-rows 20 >usage.out 2>&1
tap_is "--hot-rows without --via: usage error" $? 2
tap_like "the error names --via" "$(cat usage.out)" '--hot-rows requires --via'
"$WEFT_BIN" train --via on --scheduler on --hot-rows 20 >usage.out 2>&1
tap_is "--hot-rows with --scheduler: usage error" $? 2
"$WEFT_BIN" server --hot-rows 65537 >usage.out 2>&1
tap_is "too many hot rows: usage error" $? 2
"$WEFT_BIN" server --hot-rows 10 --hot-epoch-ms 0 >usage.out 2>&1
tap_is "--hot-epoch-ms 0: usage error" $? 2

tap_done
