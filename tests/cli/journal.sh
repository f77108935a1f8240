#!/bin/sh
# A worker is killed, and then servers before a checkpoint contains the worker's pushes: the pushes
# survive and count once. Each step waits for the previous one, so that every run of the test is the same.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/cli/tally_job.sh
. "$WEFT_SOURCE_ROOT/tests/cli/tally_job.sh"

# start <name> <mode> <durability> <servers' options...>: 2 workers, 2 servers, 40 clocks; worker 1
# dies after its push of clock 15, and all workers wait after their pushes of clock 25
start() {
    name=$1
    mkdir "$name"
    TALLY_DIE="1 15" TALLY_HOLD=25 TALLY_MODE=$2 "$weft" run --peer-timeout 60 -n 2 -s 2 --restart 9 \
        --durability "$3" --server-options "--checkpoint $PWD/$name.ckpt $4" -- \
        "$tally" work "$name" 40 >"$name.out" 2>&1 &
    run=$!
}

all_wait() { grep -q '^ack 25$' "$name/log.0" && grep -q '^ack 25$' "$name/log.1"; }

# count <pattern>: number of matching lines in the output of the run
count() { grep -c "$1" "$name.out"; }

more_than() { [ "$(count "$1")" -gt "$2" ]; }

# kill_server <number>: kill it and wait until its replacement has read the journal
kill_server() {
    before=$(count "^weft run: server $1: shard $1: journal:")
    kill -KILL "$(sed -n "s/^weft run: server $1: pid //p" "$name.out" | tail -n 1)"
    tap_until more_than "^weft run: server $1: shard $1: journal:" "$before"
}

finish() {
    touch "$name/go"
    wait "$run"
}

# exact: every row counts once, and none is missing
exact() {
    TALLY_REPLAY=1 "$tally" check "$name" 2 40 2 >check.out && cat check.out &&
        grep -q '^480 rows, 0 absent, 0 of these never answered, 0 wrong' check.out
}

for mode in bsp asp; do
    start "$mode" $mode replay "--checkpoint-every 1000000"
    tap_run "$mode: a worker dies, and its successor continues" tap_until all_wait
    tap_like "its successor starts after the clock of its last push" "$(cat $mode/log.1)" '^start 15$'
    tap_run "server 0 dies before any checkpoint" kill_server 0
    tap_run "server 0 dies again, then server 1" eval "kill_server 0 && kill_server 1"
    tap_run "the job succeeds" finish
    tap_run "every push counts once" exact
done

# The worker's death ends clock 15, for which its CLOCK is missing: the checkpoint is cut while its
# successor connects.
for mode in bsp asp; do
    start "cut-$mode" $mode replay "--checkpoint-every 15"
    tap_run "$mode: a worker dies" tap_until all_wait
    tap_run "a checkpoint at that clock becomes valid" tap_until sh -c "grep -q '^weft run: server 0: checkpoint 15: clock 15' $name.out &&
        grep -q '^weft run: server 1: checkpoint 15: clock 15' $name.out"
    tap_run "the servers die" eval "kill_server 0 && kill_server 1"
    tap_run "the job succeeds" finish
    tap_run "every push counts once" exact
done

start between ssp:2 replay "--checkpoint-every 10"
tap_run "a worker dies between two checkpoints" tap_until all_wait
tap_run "the servers die" eval "kill_server 0 && kill_server 1"
tap_run "the job succeeds" finish
tap_run "every push counts once" exact

# Usage errors.
tap_run_fails "--journal without --checkpoint is rejected" 2 "$weft" server --journal here
tap_like "the error names --checkpoint" "$(cat run.out)" '--journal requires --checkpoint'

# ---- journal and disk are full; a limit on the size of files emulates the disk ----
# serve <limit of files, blocks of 512 bytes> <options...>
serve() {
    limit=$1
    shift
    : >server.out
    (
        ulimit -f "$limit"
        trap '' XFSZ
        exec "$weft" server --security none --port 0 --checkpoint full.ckpt --checkpoint-every 86400s \
            --journal full.journal --journal-mib 1 "$@"
    ) >server.out 2>&1 &
    server=$!
    tap_until grep -q '^shard 0' server.out
    at=$(sed -n 's/^shard 0 of 1: //p' server.out)
}

# load_until <keys> <condition>: pushes to this many rows until the condition holds. How many
# pushes one run of `weft load` makes depends on the machine: none if it was suspended for the whole run.
load_until() {
    turns=0
    until $2; do
        turns=$((turns + 1))
        [ $turns -le 100 ] && kill -0 $server || return 1
        "$weft" load --security none --servers "$at" --workers 1 --mix 1:0 --keys "$1" --zipf-top 100:0.1 \
            --start-timeout 60 --warmup 0 --seconds 1 >load.out 2>&1
    done
}

has_one() { grep -q 'checkpoint [0-9]*: clock' server.out; }
# Two checkpoints after the last valid one, and a full journal: at least the second one began after
# the journal was full.
fails_when_full() {
    awk '/checkpoint [0-9]*: clock/ { full = bad = 0 } /the journal is full/ { full = 1 }
         /abandoned: .*File too large/ { bad += full } END { exit bad < 2 }' server.out
}

mkdir full.journal
serve 2400
tap_run "a checkpoint of few rows becomes valid" load_until 2000 has_one
tap_run "checkpoints larger than the disk are abandoned, and the journal is full" load_until 100000000 fails_when_full
kill -KILL $server
wait $server 2>/dev/null # until then the journal is locked
serve unlimited --restore
tap_like "what the journal contains is replayed" "$(cat server.out)" 'journal: [1-9][0-9]* chunks of pushes replayed'
kill $server
wait $server
tap_done
