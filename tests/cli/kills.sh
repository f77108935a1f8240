#!/bin/sh
# kill -9 of workers, servers, the coordinator, aggregators and the scheduler of a job under
# `weft run --restart`, at times and in numbers drawn from a seed. No job hangs, no push counts
# twice, and a restored server lacks exactly the pushes after its checkpoint, as reported to the
# workers.
#
#     WEFT_KILLS=100 meson test -C build cli_kills -t 0      100 jobs instead of 2
#     WEFT_KILLS_SEED=17 WEFT_KILLS=1 ...                    job 17 alone
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/cli/tally_job.sh
. "$WEFT_SOURCE_ROOT/tests/cli/tally_job.sh"
unset WEFT_VIA WEFT_SCHEDULER
jobs=${WEFT_KILLS:-2}
seed=${WEFT_KILLS_SEED:-6}
clocks=150
timeout_s=600 # seconds; a longer wait means that the job hangs

# draw <seed>: a line of shell: workers, servers, mode, every, kills as "KIND:PUSHES ...", the number
# of aggregators, and the options of a scheduler, if any
draw() {
    awk -v seed="$1" -v clocks=$clocks '
    function sort(i, j, t) { # the kills, by pushes
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (at[j] < at[i]) {
            t = at[i]; at[i] = at[j]; at[j] = t
            t = who[i]; who[i] = who[j]; who[j] = t
        }
    }
    BEGIN {
        srand(seed)
        for (i = 0; i < 10; i++) rand()
        w = 1 + int(rand() * 3); s = 1 + int(rand() * 2)
        split("bsp ssp:2 asp", modes, " ")
        n = 1 + int(rand() * 4)
        for (k = 1; k <= n; k++) at[k] = int(rand() * w * clocks * 0.9)
        sort()
        for (k = 1; k <= n; k++) {
            x = rand()
            who[k] = x < 0.5 ? "server-" int(rand() * s) : x < 0.85 ? "worker-" int(rand() * w) : "coordinator-0"
        }
        printf "workers=%d servers=%d mode=%s every=%d durability=%s ", w, s, modes[1 + int(rand() * 3)], 10 + int(rand() * 20), rand() < 0.6 ? "replay" : "none"
        # Drawn last, so that the rest is the same with and without.
        via = rand() < 0.5 ? 2 : 0
        x = rand()
        scheduler = x < 0.5 ? "none" : x < 0.7 ? "fast" : "slow"
        if (via > 0) { who[++n] = "aggregator-" int(rand() * via); at[n] = int(rand() * w * clocks * 0.9) }
        if (scheduler != "none") { who[++n] = "scheduler-0"; at[n] = int(rand() * w * clocks * 0.9) }
        sort()
        for (k = 1; k <= n; k++) kills = kills who[k] ":" at[k] " "
        printf "kills=\"%s\" via=%d scheduler=%s\n", kills, via, scheduler
    }'
}

pushes() { cat log/log.* 2>/dev/null | grep -c '^ack'; }

# kill_one <run's pid> <process> <pushes>: when this many pushes have replies, or the job has ended
kill_one() {
    while [ "$(pushes)" -lt "$3" ] && tap_alive "$1"; do
        sleep 0.02
    done
    who=$(echo "$2" | tr - ' ')
    victim=$(sed -n "s/^weft run: $who: pid //p" job.log | tail -n 1)
    [ -z "$victim" ] || kill -KILL "$victim" 2>/dev/null
    echo "# $2 (pid $victim) killed at $(pushes) pushes"
}

# one_job <seed>
one_job() {
    eval "$(draw "$1")"
    echo "# seed $1: $workers workers, $servers servers, $mode, $durability, checkpoint every $every," \
        "$via aggregators, scheduler $scheduler: $kills"
    rm -rf job && mkdir -p job/log && cd job || return 1
    # With a slow link updates always wait for their grants. 80 KB per update, so that grants are
    # requested.
    case $scheduler in
    none) set -- ;;
    fast) set -- --scheduler on ;;
    slow) set -- --scheduler on --scheduler-options "--link-mbps 16 --ahead 1" ;;
    esac
    unset TALLY_PARTS TALLY_DIM
    [ "$scheduler" = none ] || export TALLY_PARTS=200 TALLY_DIM=100
    TALLY_MODE=$mode TALLY_PAUSE_MS=10 timeout $timeout_s "$weft" run --peer-timeout 60 -n "$workers" \
        -s "$servers" --restart 100 --durability "$durability" --aggregators "$via" "$@" --server-options \
        "--dim-max 100 --checkpoint $PWD/checkpoints --checkpoint-every $every" -- \
        "$tally" work log $clocks >job.log 2>&1 &
    run=$!
    for kill in $kills; do
        kill_one $run "${kill%:*}" "${kill#*:}"
    done
    wait $run
    status=$?
    # A server has one shard here; a server restarted without a checkpoint has clock 0.
    awk '/^weft run: server [0-9]*: pid/ { s = $4 + 0; if (n[s]++) { print s, 0 } }
        /: restored from checkpoint/ { s = $4 + 0; print s, $NF }' job.log |
        awk '{ line[NR] = $0; shard[NR] = $1 } END { for (i = 1; i <= NR; i++) {
            split(line[i], a, " ")
            # 0 was written at the start; the checkpoint, if any, is the next line of that shard
            keep = 1
            if (a[2] == 0) for (j = i + 1; j <= NR; j++) if (shard[j] == a[1]) {
                split(line[j], b, " "); if (b[2] != 0) keep = 0; break
            }
            if (keep) print line[i] } }' >log/restored
    replay=
    [ "$durability" = none ] || replay=TALLY_REPLAY=1
    env $replay "$tally" check log "$workers" $clocks "$servers" >check.out 2>&1
    checked=$?
    tail -n 1 check.out | sed 's/^/# /'
    if [ $status -ne 0 ] || [ $checked -ne 0 ]; then
        sed 's/^/# run: /' job.log | grep -v 'checkpoint [0-9]*: clock' | tail -n 40
        head -n 20 check.out | sed 's/^/# check: /'
        cat log/restored
    fi
    cd .. || return 1
    [ $status -eq 0 ] && [ $checked -eq 0 ]
}

# A training whose server and worker are killed, each after another epoch of worker 0. wait_for
# <run's pid> <pattern>
wait_for() {
    until grep -q "$2" job.log || ! tap_alive "$1"; do
        sleep 0.02
    done
}
train() {
    timeout $timeout_s "$weft" run --peer-timeout 60 -n 2 -s 2 --restart 20 --durability replay --server-options \
        "--checkpoint $PWD/checkpoints --checkpoint-every 20" -- \
        "$weft" worker --peer-timeout 60 --epochs 3 >job.log 2>&1 &
    run=$!
    wait_for $run '^\[worker 0\] {"event":"epoch","epoch":1'
    kill_one $run server-1 0
    wait_for $run '^\[worker 0\] {"event":"epoch","epoch":2'
    kill_one $run worker-1 0
    wait $run
}
tap_run "a training job succeeds although a server and a worker are killed" train
cp job.log train.out
auc=$(sed -n 's/^\[worker 0\] {"event":"test","epoch":3.*"test_auc":\([0-9.]*\).*/\1/p' train.out)
tap_run "its AUC is above 0.915 ($auc)" awk "BEGIN { exit !(${auc:-0} > 0.915) }"

tally_jobs "$jobs" "$seed" "succeeds, and every push counts once"
tap_done
