#!/bin/sh
# Replicas of servers: kill -9 of servers whose replicas are promoted, under `weft run` and `weft train`.
# With a divergence bound of 0 no acknowledged push is lost, and none counts twice; with another bound the loss is
# within it. Training reaches about the same loss as without a kill.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/cli/tally_job.sh
. "$WEFT_SOURCE_ROOT/tests/cli/tally_job.sh"
clocks=150
timeout_s=300 # seconds; a longer wait means that the job hangs

# ready <run> <server> <times>: true if its replica has become ready this many times
ready() {
    until [ "$(grep -c "^weft run: replica $2: ready" job.log)" -ge "$3" ] || ! tap_alive "$1"; do
        sleep 0.05
    done
}

# begun <run> <pattern> <files>: true if two files have a matching line, or one has two; workers are
# then connected
begun() {
    until [ "$(cat $3 2>/dev/null | grep -c "$2")" -ge 2 ] || ! tap_alive "$1"; do
        sleep 0.05
    done
}

# kill_server <run> <server>
kill_server() {
    victim=$(sed -n "s/^weft run: server $2: pid \([0-9]*\).*/\1/p" job.log | tail -n 1)
    ! tap_alive "$1" || kill -KILL "$victim"
}

# tallied <mode> <div-max>: two servers, each killed twice when its replica is ready, before the last clocks
tallied() {
    rm -rf job && mkdir -p job/log && cd job || return 1
    TALLY_MODE=$1 TALLY_PAUSE_MS=10 TALLY_HOLD=$((clocks - 10)) timeout $timeout_s "$weft" run \
        --peer-timeout 60 -n 2 -s 2 \
        --replicas 1 --div-max "$2" --on-server-death promote -- \
        "$tally" work log $clocks >job.log 2>&1 &
    run=$!
    begun $run '^ack 1$' 'log/log.0 log/log.1'
    for round in 1 2; do
        for s in 0 1; do
            ready $run $s $round
            kill_server $run $s
        done
    done
    : >log/go
    wait $run
    status=$?
    replay=TALLY_REPLAY=1
    # Unacknowledged pushes may be missing, as after a checkpoint.
    [ "$2" = 0 ] && [ "$1" != bsp ] || { replay=; printf '0 0\n1 0\n0 0\n1 0\n' >log/restored; }
    env $replay "$tally" check log 2 $clocks 2 >check.out 2>&1
    checked=$?
    tail -n 1 check.out
    grep -e '^weft run: ' -e 'tally: ' job.log
    tail -n 2 log/log.*
    cd .. || return 1
    [ $status -eq 0 ] && [ $checked -eq 0 ]
}
promotions() { grep -c 'which was its replica' job/job.log; }

tap_run "div_max 0, ASP: no acknowledged push is lost, none counts twice" tallied asp 0
tap_run "ASP: four replicas were promoted" test "$(promotions)" = 4
# The other modes and the loss of a training run the same code again, so not under a sanitizer, where
# cli_scheduler_kills trains with replicas, too.
if [ "$WEFT_BUILD_NAME" = release ]; then
    tap_run "div_max 0, SSP: no acknowledged push is lost, none counts twice" tallied ssp:2 0
    tap_run "SSP: four replicas were promoted" test "$(promotions)" = 4
    tap_run "div_max 0, BSP: no push counts twice" tallied bsp 0
    tap_run "BSP: four replicas were promoted" test "$(promotions)" = 4
fi
tap_run "div_max 5, ASP: no push counts twice" tallied asp 5
# Each missing row was 1; each of the four promotions may lose at most its shard's bound.
tap_run "div_max 5: the lost pushes are within the bound" awk "BEGIN { exit !(sqrt($(
    sed -n 's/.* rows, \([0-9]*\) absent.*/\1/p' job/check.out | tail -n 1 | grep . || echo 0)) <= 4 * 5 / sqrt(2)) }"

# ---- with a scheduler ----
# The promoted server connects to the scheduler, and its workers are
# served.
scheduled() {
    rm -rf job && mkdir -p job/log && cd job || return 1
    "$weft" keygen key >/dev/null
    "$weft" scheduler --key-file key --port 0 --workers 1 --shards 1 --json >scheduler.out 2>&1 &
    scheduler=$!
    until grep -q '^scheduler: ' scheduler.out || ! tap_alive $scheduler; do
        sleep 0.05
    done
    TALLY_MODE=asp TALLY_PAUSE_MS=10 TALLY_HOLD=390 timeout $timeout_s "$weft" run --key-file key \
        --metrics 0 \
        --peer-timeout 60 -n 1 --replicas 1 --div-max 0 --on-server-death promote \
        --server-options "--scheduler $(sed -n 's/^scheduler: //p' scheduler.out)" -- \
        "$tally" work log 400 >job.log 2>&1 &
    run=$!
    ready $run 0 1
    until grep -q '^ack 5$' log/log.0 2>/dev/null || ! tap_alive $run; do
        sleep 0.05
    done
    kill_server $run 0
    until grep -q 'which was its replica' job.log || ! tap_alive $run; do
        sleep 0.05
    done
    python3 - "$(sed -n 's/^weft run: metrics: \(.*\)metrics$/\1targets/p' job.log)" >metrics.out 2>&1 <<'END'
import json, re, sys, time, urllib.request
def get(url):
    return urllib.request.urlopen(url, timeout=60).read().decode()
end = time.monotonic() + 120
while True: # until the promoted server has sent something to its own replica
    text = get(sys.argv[1].replace("targets", "metrics"))
    for group in json.loads(get(sys.argv[1])):
        if group["labels"].get("role") == "server":
            text += get("http://%s/metrics" % group["targets"][0])
    if re.search("weft_replica_transfers_total{[^}]*} [1-9]", text) or time.monotonic() > end:
        break
    time.sleep(0.05)
print(text)
END
    : >log/go
    wait $run
    status=$?
    kill -INT $scheduler
    wait $scheduler
    grep '^weft run: ' job.log
    cd .. || return 1
    return $status
}
tap_run "with a scheduler the job succeeds after a promotion" scheduled
tap_run "with a scheduler one replica was promoted" test "$(promotions)" = 1
tap_like "/metrics counts the promotion" "$(cat job/metrics.out)" '^weft_run_promotions_total 1$'
tap_like "/metrics has the role replica" "$(cat job/metrics.out)" \
    '^weft_run_starts_total{role="replica"} [1-9]'
tap_like "the replica's metrics are at the address in /targets" "$(cat job/metrics.out)" 'weft_replica_transfers_total{[^}]*} [1-9]'

# ---- training ----
epochs=40

# kill_server_of <run> <pattern>: when the replica is ready and two lines of ended epochs match, the server is killed.
# Workers that have ended need no server, so worker 1 is stopped until the replica has been promoted and has a
# replica itself. False if worker 1 had ended before it was stopped.
kill_server_of() {
    ready "$1" 0 1
    begun "$1" "$2" 'job.log train.out'
    worker=$(sed -n 's/^weft run: worker 1: pid //p' job.log)
    kill -STOP "$worker" 2>/dev/null
    until [ "$(tap_state "$worker")" = T ] || ! tap_alive "$worker"; do
        sleep 0.01
    done
    tap_alive "$worker" || return 1
    kill_server "$1" 0
    ready "$1" 0 2
    kill -CONT "$worker" 2>/dev/null
}

# train <pattern of ended epochs; empty: without a kill> <options>: a job that ends before the kill is repeated
train() {
    pattern=$1
    shift
    for _ in 1 2 3 4 5; do
        : >job.log # here: the background shell empties it only when it gets to run
        : >train.out
        timeout $timeout_s "$weft" train --data "$WEFT_SOURCE_ROOT/data/adult/adult.data.zst" \
            --format adult --workers 2 --servers 1 --epochs $epochs --replicas 1 --div-max 0.5 \
            --on-server-death promote --peer-timeout 60 "$@" >train.out 2>job.log &
        run=$!
        late=
        [ -z "$pattern" ] || kill_server_of $run "$pattern" || late=1
        wait $run
        status=$?
        [ -n "$late" ] && [ $status -eq 0 ] || break
    done
    [ $status -eq 0 ] || cat job.log
    return $status
}
loss() { sed -n 's/^\[worker 0\] {"event":"test","epoch":'$epochs',"test_logloss":\([0-9.]*\).*/\1/p' train.out; }
if [ "$WEFT_BUILD_NAME" = release ]; then
    tap_run "training with a replica succeeds" train "" --save model
    undisturbed=$(loss)
    tap_run "training whose server is killed succeeds" train '"event":"epoch","epoch":[12],' --save model
    tap_like "the replica was promoted" "$(cat job.log)" 'which was its replica, after [0-9]* ms$'
    tap_run "both have the same loss within 0.01 ($undisturbed, $(loss))" awk \
        "BEGIN { d = $(loss) - ${undisturbed:-9}; exit !(d < 0.01 && d > -0.01) }"
fi

# ---- the report ----
# It contains the replicas and a promotion; afterwards the server's counters
# are those of the promoted process.
tap_run "training with --json whose server is killed succeeds" train '^epoch [12]/' --json
tap_run "the report has replicas and the promotion" python3 -c "
import json
r = json.load(open('train.out'))
p = r['replicas']
assert r['epochs'] == 40 and r['test_auc'] > 0.9, r['test_auc']
assert p['div_max'] == 0.5 and 0 < p['divergence_max'] <= 0.5, p
assert p['promotions'] == 1 and p['transfers'] > 0 and p['bytes'] > 0 and p['rows'] > 0, p
assert p['transfers'] == r['counters']['replica_transfers'], p"

# ---- incompatible options ----
refused() {
    words=$1 pattern=$2
    shift 2
    tap_run_fails "$words" 2 "$weft" "$@"
    tap_like "the error says why" "$(cat run.out)" "$pattern"
}
refused "--json with --restart is rejected" 'requires a run without' train --replicas 1 --on-server-death promote \
    --restart 1 --json
refused "promote without replicas is rejected" 'requires --replicas 1' run --on-server-death promote -- true
refused "--div-max without replicas is rejected" 'div-max requires' run --div-max 1 -- true
refused "--replica-of without --coordinator is rejected" 'requires --coordinator' server --replica-of 127.0.0.1:1
refused "--replica-of without --replicate is rejected" 'requires --replicate' server --replica-of 127.0.0.1:1 \
    --coordinator 127.0.0.1:1
refused "a replica of more shards than it has is rejected" 'each of the 1 shards here' server --replicate \
    --replica-of 127.0.0.1:1,127.0.0.1:2 --coordinator 127.0.0.1:1
refused "--replicate with --checkpoint is rejected" 'which rows the newest checkpoint has' server --replicate --checkpoint c
refused "--replicas with --checkpoint is rejected" 'which rows the newest checkpoint has' run --replicas 1 \
    --on-server-death promote --server-options "--checkpoint c" -- true
refused "a negative --div-max is rejected" 'div-max' server --replicate --div-max -1
tap_done
