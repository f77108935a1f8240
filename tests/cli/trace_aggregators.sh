#!/bin/sh
# `weft aggregate --records` and what `weft trace figures` shows of it: a job on loopback with an
# aggregator, the same job without, and records that are incomplete.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB WEFT_VIA
unset WEFT_DATA_DIR
data=$WEFT_SOURCE_ROOT/data/adult/adult.data.zst
tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY

query() {
    python3 - "$1" "$2" <<'END'
import sqlite3, sys
db = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True)
print("|".join(str(v) for v in db.execute(sys.argv[2]).fetchone()))
END
}
port_of() { sed -n 's/^shard 0.*:\([0-9]*\)$/\1/p' "$1"; }
figure() { sed -n "s/.*\"$1\":[[:space:]]*\([0-9]*\).*/\1/p" aggregate.out; }
# of DIR N FILTER: a value of figure N; run_of DIR FILTER: a value of the first run
of() { jq -r --arg n "$2" "[.figures[] | select(.figure == \$n)][0].$3" "$1/figures.json"; }
run_of() { jq -r ".runs[0].$2" "$1/figures.json"; }
# Pictures need gnuplot; findings do not.
figures() { "$WEFT_BIN" trace figures "$@" >figures.out 2>figures.err || grep -q gnuplot figures.err; }

# ---- a job with an aggregator, each process with records of its own ------------------------------

# job <epochs>: sets $first, $second and $box, the exit statuses of the workers and of the aggregator.
job() {
    rm -f ./*.db server.out aggregate.out
    "$WEFT_BIN" server --port 0 --workers 2 --records server.db >server.out 2>server.err &
    server=$!
    tap_until tap_lines 1 '^shard .*:' server.out
    "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 2 --json --flush-age-us 20000 \
        --servers "127.0.0.1:$(port_of server.out)" --records box.db >aggregate.out 2>aggregate.err &
    aggregator=$!
    tap_until tap_lines 1 '^shard .*:' aggregate.out
    for rank in 0 1; do
        "$WEFT_BIN" worker --data "$data" --servers "127.0.0.1:$(port_of server.out)" --workers 2 \
            --rank "$rank" --via "127.0.0.1:$(port_of aggregate.out)" --epochs "$1" --batch 512 \
            --records "worker-$rank.db" >"$rank.out" 2>"$rank.err" &
        eval "worker$rank=\$!"
    done
    # shellcheck disable=SC2154
    wait "$worker0"
    first=$?
    # shellcheck disable=SC2154
    wait "$worker1"
    second=$?
    kill "$aggregator"
    wait "$aggregator"
    box=$?
    kill "$server"
    wait "$server"
}
# Workers push directly until the aggregator replies. On a busy machine a short job may end before.
for epochs in 1 8 64; do
    job $epochs
    [ "$(figure pushes_absorbed)" -le 10 ] || break
done
tap_is "a job with an aggregator: the first worker exits with 0" "$first" 0
tap_is "the second worker exits with 0" "$second" 0
tap_is "the aggregator exits with 0" "$box" 0
tap_is "its database has its process" "$(query box.db "SELECT role, rank, ended, dropped, cpu_ns > 0 FROM process")" \
    'aggregator|0|1|0|1'
tap_is "aggregate_in has as many pushes as the aggregator counted" \
    "$(query box.db "SELECT sum(pushes), sum((status = 0) * pushes) FROM aggregate_in")" \
    "$(figure pushes_in)|$(figure pushes_absorbed)"
tap_is "aggregate_out has as many sums, rows and bytes as the aggregator counted" \
    "$(query box.db "SELECT count(*), sum(rows_in), sum(rows_out), sum(bytes_out) FROM aggregate_out")" \
    "$(figure aggregates_out)|$(figure rows_in)|$(figure rows_out)|$(figure bytes_out)"
tap_is "the pushes of each sum are in aggregate_in" \
    "$(query box.db "SELECT count(*), min(o.pushes = (SELECT sum(pushes) FROM aggregate_in AS i
        WHERE i.aggregate = o.rpc AND i.server = o.server)) FROM aggregate_out AS o")" \
    "$(figure aggregates_out)|1"
tap_is "times are in order" "$(query box.db "SELECT min(first_ns <= sent_ns AND sent_ns <= answer_ns),
    (SELECT min(arrival_ns <= answer_ns) FROM aggregate_in) FROM aggregate_out")" '1|1'
tap_run "the databases of all processes are merged" "$WEFT_BIN" trace merge server.db box.db worker-0.db worker-1.db -o with.db
# Not all: a worker to which the aggregator did not reply in time has resent the push, without its rows.
tap_is "over 80 % of the absorbed pushes are in the workers' records, with equal rows" \
    "$(query with.db "SELECT count(*) > 0.8 * $(figure pushes_absorbed), avg(i.rows = r.rows AND r.kind = 1) > 0.8
        FROM aggregate_in AS i JOIN rpc AS r ON r.server = i.server AND r.worker = i.sender AND r.rpc = i.rpc
        WHERE i.status = 0")" '1|1'
tap_run "figures 10b and 10c succeed" figures with.db -o one --only 10b,10c
tap_is "the absorbed fraction is 1 - messages to the server / pushes" \
    "$(run_of one 'aggregators[0] | .absorbed == 1 - (.sums + .pushes_direct) / .pushes and .absorbed > 0')" true
tap_is "the combined fraction is 1 - rows out / rows in" \
    "$(run_of one 'aggregators[0] | .combined == 1 - .rows_out / .rows_in and .combined > 0')" true
tap_is "pushes, sums and rows are as the aggregator counted" "$(run_of one 'aggregators[0] | "\(.pushes) \(.sums) \(.rows_in)"')" \
    "$(figure pushes_in) $(figure aggregates_out) $(figure rows_in)"
tap_is "the figures have PS_proc of updates in sums, and CPU time of server and aggregator" \
    "$(run_of one 'aggregation | .aggregated.ps_proc_ns > 0 and .server_cpu_ns > 0 and .aggregator_cpu_ns > 0')" true
tap_is "updates of both paths add up to those of all pushes" \
    "$(run_of one 'aggregation | .direct.updates + .aggregated.updates')" \
    "$(query with.db "SELECT sum(rows) FROM rpc WHERE kind = 1 AND status = 0")"
tap_is "the mean of active connections is between 1 and 3" \
    "$(run_of one 'aggregation | .connections_mean >= 1 and .connections_mean <= 3')" true
tap_is "each window has connections, at most 3, and at most 2 workers" \
    "$(query with.db "SELECT min(connections + workers) >= 1, max(connections) <= 3, max(workers) <= 2 FROM active")" '1|1|1'
tap_like "figure 10b has the absorbed fraction as text" "$(of one 10b here)" '^of [0-9]* pushes aggregators absorb [0-9.]* %'
tap_like "each aggregator has a line" "$(cat one/findings.txt)" \
    '^with.db: aggregator 0 to server 0: [0-9]* pushes in, [0-9]* sums out'
tap_like "figure 10c is omitted for one run" "$(of one 10c left_out)" 'runs with aggregators and without'

# ---- weft train, with and without ----------------------------------------------------------------

via() { # as above, until sums of several pushes were sent to both servers
    for epochs in 1 8 64; do
        rm -f via.db
        "$WEFT_BIN" train --data "$data" --via on --workers 2 --servers 2 --epochs $epochs --loss-bound 0 \
            --records via.db || return
        [ "$(query via.db "SELECT count(DISTINCT server) FROM aggregate_out WHERE pushes > 1")" -lt 2 ] || return 0
    done
}
tap_run "weft train --via --records succeeds" via
tap_is "its database has the aggregator" "$(query via.db "SELECT count(*), sum(role = 'aggregator'), sum(ended) FROM process")" '5|1|5'
tap_is "an aggregator has a line for each server" \
    "$(figures via.db -o two --only 10b && grep -c '^via.db: aggregator 0 to server [01]: ' two/findings.txt)" 2
tap_run "weft train without --via succeeds" "$WEFT_BIN" train --data "$data" --workers 2 --servers 2 --epochs 1 \
    --loss-bound 0 --records direct.db
tap_run "figures of both runs succeed" figures direct.db via.db -o both --only 10b,10c
tap_like "figure 10b is omitted for the run without aggregators" "$(of both 10b left_out)" 'no records of aggregators'
tap_like "figure 10c compares both runs" "$(of both 10c here)" \
    'without aggregators (1 run): [0-9]* ns of PS_proc and PS_overlap, [0-9]* ns of the servers. CPU, .*with them (1 run), which remove .* % of PS_proc saved, .* % of the CPU$'
cp via.db slow.db
python3 -c 'import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()' slow.db \
    "UPDATE rpc SET ps_proc_ns = ps_proc_ns * 3, ps_overlap_ns = ps_overlap_ns * 3 WHERE kind = 1"
proc_of() { of both 10c here | sed 's/.*; with them ([^)]*), which[^:]*: \([0-9]*\) ns.*/\1/'; }
one=$(proc_of)
figures direct.db via.db slow.db -o both --only 10c
tap_like "figure 10c counts two runs with aggregators" "$(of both 10c here)" 'with them (2 runs)'
tap_is "it uses their mean, not the better one" "$(awk -v one="$one" -v two="$(proc_of)" \
    'BEGIN { print (two > 1.9 * one && two < 2.1 * one) }')" 1
figures direct.db via.db -o both --only 10b,10c
tap_is "without aggregators there are as many connections as workers" \
    "$(run_of both 'aggregation | .connections_mean == .workers_mean')" true
tap_like "summary prints the aggregator's CPU time" "$("$WEFT_BIN" trace summary via.db)" '^aggregator CPU: '

# ---- incomplete records --------------------------------------------------------------------------

tap_run "figures from the aggregator's records only succeed" figures box.db -o box --only 10b
tap_like "the finding names the missing records" "$(of box 10b here)" "the workers' records are missing, so PS_proc is not known"
tap_is "the server's CPU is not known" "$(run_of box 'aggregation.server_cpu_ns')" null
tap_is "the absorbed fraction is known" "$(run_of box 'aggregators[0].absorbed > 0')" true

"$WEFT_BIN" train --data "$data" --via on --workers 2 --servers 1 --epochs 10000 --records killed.db \
    >killed.out 2>&1 &
train=$!
tap_until tap_lines 1 '^epoch 1/' killed.out
kill -9 "$(sed -n 's/^aggregator 0: pid //p' killed.out)"
tap_until grep -q 'workers push to the servers directly' killed.out
tap_until tap_lines $(($(grep -c '^epoch' killed.out) + 2)) '^epoch' killed.out # with pushes after its death
kill -INT "$train"
wait "$train"
tap_is "the killed aggregator is recorded as not ended" \
    "$(query killed.db "SELECT role, ended FROM process WHERE ended = 0")" 'aggregator|0'
tap_run "figures of that run succeed" figures killed.db -o killed --only 10b
tap_like "the findings say that records are incomplete" "$(cat killed/findings.txt)" \
    '^killed.db: the records of 1 processes are INCOMPLETE'
tap_is "pushes after its death are direct" "$(run_of killed 'aggregation.direct.pushes > 0')" true

# A truncated spool. The worker trains until the spool has records.
rm -f server.out aggregate.out
"$WEFT_BIN" server --port 0 --workers 1 >server.out 2>server.err &
server=$!
tap_until tap_lines 1 '^shard .*:' server.out
"$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 1 --servers "127.0.0.1:$(port_of server.out)" \
    --records cut.db >aggregate.out 2>aggregate.err &
aggregator=$!
tap_until tap_lines 1 '^shard .*:' aggregate.out
"$WEFT_BIN" worker --data "$data" --servers "127.0.0.1:$(port_of server.out)" --workers 1 --rank 0 \
    --via "127.0.0.1:$(port_of aggregate.out)" --epochs 10000 --batch 64 >0.out 2>0.err &
worker=$!
spool=cut.db.spool-aggregator-0
has_records() { [ "$(wc -c <"$spool")" -gt 4000 ]; }
tap_until has_records
kill -9 "$aggregator"
kill "$worker" "$server"
wait "$worker" "$aggregator" "$server"
tap_run_fails "trace figures rejects a spool" 1 "$WEFT_BIN" trace figures "$spool" -o x
tap_like "the error names weft trace merge" "$(cat run.out)" "$spool: is a spool.*weft trace merge"
size=$(wc -c <"$spool")
head -c "$((size - 500))" "$spool" >cut.spool
tap_run "a truncated spool is merged" "$WEFT_BIN" trace merge cut.spool -o cut.db
tap_run "its figures succeed" figures cut.db -o cut --only 10b
tap_like "the findings say that records are incomplete" "$(cat cut/findings.txt)" 'of 1 processes are INCOMPLETE'

# A truncated database.
size=$(wc -c <with.db)
head -c "$((size / 2))" with.db >half.db
tap_run_fails "trace figures rejects a truncated database" 1 "$WEFT_BIN" trace figures half.db -o x
tap_like "the error says that it is truncated" "$(cat run.out)" '^weft trace figures: half.db: .*truncated'
tap_done
