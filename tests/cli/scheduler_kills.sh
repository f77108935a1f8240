#!/bin/sh
# kill -9 and SIGSTOP of the scheduler, aggregators, servers, replicas and workers of a job under
# `weft run`, at times and in an order drawn from a seed. The job continues, no push counts twice,
# and the loss of each promotion is within the bound. Each server has a replica that is promoted;
# the other processes are restarted. A job whose seed is a multiple of 3 trains a model, with updates cut
# into pieces. By default jobs 2 and 3 run, one of each kind.
#
#     WEFT_SCHEDULER_KILLS=20 meson test -C build cli_scheduler_kills -t 0    20 jobs instead of 2
#     WEFT_SCHEDULER_KILLS_SEED=17 WEFT_SCHEDULER_KILLS=1 ...                 job 17 alone
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/cli/tally_job.sh
. "$WEFT_SOURCE_ROOT/tests/cli/tally_job.sh"
unset WEFT_RECONNECT_S WEFT_REPLAY_BYTES WEFT_VIA WEFT_SCHEDULER
jobs=${WEFT_SCHEDULER_KILLS:-2}
seed=${WEFT_SCHEDULER_KILLS_SEED:-2}
clocks=120
timeout_s=300    # seconds; a longer wait means that the job hangs
lease_ms=1000    # a process frozen for longer has lost its lease
# 80 KB per update, so that grants are requested. Only rows that fit a packet are summed
TALLY_PARTS=200
TALLY_DIM=100
export TALLY_PARTS TALLY_DIM
run=
frozen=
tap_at_exit '[ -z "$frozen" ] || kill -CONT $frozen 2>/dev/null; [ -z "$run" ] || kill "$run" 2>/dev/null; wait'

# draw <seed>: a line of shell: workers, servers, mode, div_max, the options of a scheduler, if any,
# and events as "KIND-RANK:MS" with the time since the previous event. A server is killed when its
# replica can be promoted.
draw() {
    awk -v seed="$1" 'BEGIN {
        srand(seed)
        for (i = 0; i < 10; i++) rand()
        w = 2 + int(rand() * 4); s = 1 + int(rand() * 2)
        split("asp ssp:2 asp bsp", modes, " ")
        split("0 50 200 1000", bounds, " ")
        # One event of each kind in random order, then some more.
        n = split("scheduler aggregator server replica", kinds, " ")
        for (i = n; i > 1; i--) { j = 1 + int(rand() * i); t = kinds[i]; kinds[i] = kinds[j]; kinds[j] = t }
        m = n + 2 + int(rand() * 4)
        for (i = n + 1; i <= m; i++) {
            x = rand()
            kinds[i] = x < 0.2 ? "scheduler" : x < 0.35 ? "aggregator" : x < 0.55 ? "server" : \
                x < 0.65 ? "replica" : x < 0.75 ? "worker" : x < 0.85 ? "freeze_scheduler" : \
                x < 0.95 ? "freeze_aggregator" : "freeze_server"
        }
        for (i = 1; i <= m; i++) {
            k = kinds[i]
            r = k ~ /scheduler/ ? 0 : k ~ /aggregator/ ? int(rand() * 2) : k == "worker" ? int(rand() * w) : int(rand() * s)
            events = events k "-" r ":" int(rand() * 900) " "
        }
        mode = modes[1 + int(rand() * 4)]
        printf "workers=%d servers=%d mode=%s div_max=%s events=\"%s\"", w, s, mode, bounds[1 + int(rand() * 4)], events
        # Without a scheduler all pushes are sent to the aggregators. With a slow link updates
        # always wait, so sums are planned, except in BSP.
        x = rand()
        printf " scheduler=%s\n", x < 0.3 ? "none" : x < 0.55 || mode == "bsp" ? "fast" : "slow"
    }'
}

pid_of() { # pid_of <role> <rank>: pid of the process in that slot
    sed -n "s/^weft run: $1 $2: pid \([0-9]*\).*/\1/p" job.log | tail -n 1
}

# has_replica <server>: true if its newest replica is alive and can be promoted; the run may not
# have detected its end yet
has_replica() {
    tap_alive "$(pid_of replica "$1")" && awk -v r="weft run: replica $1" -v s="weft run: server $1: pid" '
        index($0, r ": pid") == 1 || index($0, s) == 1 { ready = 0 }
        index($0, r ": ready") == 1 { ready = 1 }
        index($0, r " ") == 1 { ready = 0 }
        END { exit !ready }' job.log
}

# wait_for <command...>: until it succeeds or the job has ended
wait_for() {
    until "$@"; do
        tap_alive "$run" || return 1
        sleep 0.02
    done
}

sleep_ms() { sleep "$(awk -v ms="$1" 'BEGIN { print ms / 1000 }')"; }

is_another() { [ "$(pid_of "$1" "$2")" != "$3" ]; }

# happens <kind> <rank>
happens() {
    role=${1#freeze_}
    case $role in
    server | replica) wait_for has_replica "$2" || return ;;
    esac
    victim=$(pid_of "$role" "$2")
    [ -n "$victim" ] && tap_alive "$victim" || return
    case $1 in
    freeze_*)
        kill -STOP "$victim"
        frozen=$victim
        sleep 2.5
        kill -CONT "$victim"
        frozen=
        # A replica without a message for 2 s cannot be promoted: it must receive one from its
        # server first.
        sleep 1
        ;;
    *)
        kill -KILL "$victim"
        while tap_alive "$victim"; do
            sleep 0.01
        done
        ;;
    esac
    echo "# $1 $2 (pid $victim)"
    # Wait for the promotion or the end of the run: no other event may affect the pair.
    [ "$1" != server ] || wait_for is_another server "$2" "$victim"
}

# all_happen: the events that were drawn, one after the other, as long as the job runs
all_happen() {
    for event in $events; do
        sleep_ms "${event#*:}"
        one=${event%:*}
        happens "${one%-*}" "${one#*-}"
    done
}

all_begun() { [ "$(cat log/log.* 2>/dev/null | grep -c '^ack 1$')" -eq "$workers" ]; }

promotions() { grep -c 'which was its replica' job.log; }

# within_bound: the norm of acknowledged but missing rows is within the bound. Each promotion may
# lose its shard's bound. In BSP pushes of the clock in progress are in no weights yet, so the bound
# does not cover them.
within_bound() {
    sed -n 's/.* rows, \([0-9]*\) absent, \([0-9]*\) of these.*/\1 \2/p' check.out | tail -n 1 |
        awk -v n="$(promotions)" -v d="$div_max" -v s="$servers" -v dim=$TALLY_DIM '{
            norm = sqrt(($1 - $2) * dim); most = n * d / sqrt(s)
            printf "# acknowledged and lost: %g as a norm, of at most %g\n", norm, most
            exit norm > most * 1.000001 }'
}

# one_training <seed>: `weft train` with updates cut into pieces. Its steps take at least 40 ms, so that it lasts
# as long as most of the events. A job that ends before a replica is promoted is repeated with longer steps.
one_training() {
    eval "$(draw "$1")"
    cut=$((2 + $1 % 7))
    echo "# seed $1: $workers workers, $servers servers, $mode, training with up to $cut pieces: $events"
    rm -rf job && mkdir job && cd job || return 1
    for scale in 0.02 0.08; do
        : >job.log # here: the background shell empties it only when it gets to run
        timeout $timeout_s "$weft" train --model mlp --factors $((8 * servers)) --workers "$workers" \
            --servers "$servers" --epochs 12 --batch $((1536 / workers)) --mode "$mode" --compute fixed \
            --compute-scale $scale --scheduler on --via on --aggregators 2 --cut-through $cut --replicas 1 \
            --div-max 0.5 --on-server-death promote --restart 100 --peer-timeout 60 >job.log 2>&1 &
        run=$!
        wait_for grep -q '"event":"epoch","epoch":1,' job.log
        all_happen
        wait $run
        status=$?
        run=
        [ $status -eq 0 ] && [ "$(promotions)" -eq 0 ] || break
    done
    loss=$(sed -n 's/^\[worker 0\] {"event":"test","epoch":12,"test_logloss":\([0-9.]*\).*/\1/p' job.log | tail -n 1)
    echo "# status $status, loss ${loss:-none}, $(promotions) promotions"
    python3 -c "
import json
assert $status == 0 and $(promotions) > 0
assert abs(json.load(open('../calm.json'))['test_logloss'] - ${loss:-9}) < 0.02"
    good=$?
    [ $good -eq 0 ] || sed 's/^/# run: /' job.log | tail -n 60
    cd .. && return $good
}

# one_job <seed>
one_job() {
    if [ $(($1 % 3)) -eq 0 ]; then
        one_training "$1"
        return
    fi
    eval "$(draw "$1")"
    echo "# seed $1: $workers workers, $servers servers, $mode, div_max $div_max, scheduler $scheduler: $events"
    rm -rf job && mkdir -p job/log && cd job || return 1
    case $scheduler in
    none) set -- ;;
    fast) set -- --scheduler on ;;
    slow) set -- --scheduler on --scheduler-options "--link-mbps 16 --ahead 1" ;;
    esac
    TALLY_MODE=$mode TALLY_PAUSE_MS=20 TALLY_HOLD=$((clocks - 5)) timeout $timeout_s "$weft" run \
        --peer-timeout 60 --lease-ms $lease_ms -n "$workers" -s "$servers" --restart 100 --replicas 1 \
        --div-max "$div_max" --on-server-death promote --aggregators 2 "$@" \
        --server-options "--dim-max $TALLY_DIM" -- "$tally" work log $clocks >job.log 2>&1 &
    run=$!
    wait_for all_begun
    all_happen
    : >log/go
    wait $run
    status=$?
    run=
    # Unacknowledged pushes may be missing, as after a checkpoint.
    replay=TALLY_REPLAY=1
    if [ "$div_max" != 0 ] || [ "$mode" = bsp ]; then
        replay=
        sed -n 's/^weft run: server \([0-9]*\): pid .*which was its replica.*/\1 0/p' job.log >log/restored
    fi
    env $replay "$tally" check log "$workers" $clocks "$servers" >check.out 2>&1
    checked=$?
    tail -n 1 check.out | sed 's/^/# /'
    within=0
    [ "$mode" = bsp ] || within_bound || within=1
    echo "# $(promotions) promotions; $(sed -n 's/.*tally: updates: //p' job.log | awk '
        { a += $1; g += $3; d += $6 } END { print a " updates, " g " requested, " d " sent without a grant" }')"
    if [ $status -ne 0 ] || [ $checked -ne 0 ] || [ $within -ne 0 ]; then
        echo "# status $status"
        sed 's/^/# run: /' job.log | tail -n 60
        head -n 20 check.out | sed 's/^/# check: /'
    fi
    cd .. || return 1
    [ $status -eq 0 ] && [ $checked -eq 0 ] && [ $within -eq 0 ]
}

# hit <victims> <pattern>: when the pattern is in the output, the victims, ROLE-RANK, are killed one after the other.
# Worker 0 is stopped meanwhile, so that the job does not end before. False if it had ended before it was stopped.
hit() {
    wait_for has_replica 0
    wait_for grep -q "$2" job.log "$name.json"
    held=$(pid_of worker 0)
    kill -STOP "$held" 2>/dev/null
    until [ "$(tap_state "$held")" = T ] || ! tap_alive "$held"; do
        sleep 0.01
    done
    tap_alive "$held" || return 1
    for victim in $1; do
        happens "${victim%-*}" "${victim#*-}"
        sleep 0.3
    done
    kill -CONT "$held" 2>/dev/null
}

# trained <name> <victims> <pattern> <options>: training with all features, its report or lines in <name>.json; a job
# that ends before the victims are killed is repeated
trained() {
    name=$1 victims=$2 pattern=$3
    shift 3
    for _ in 1 2 3 4 5; do
        : >job.log # here: the background shell empties it only when it gets to run
        : >"$name.json"
        timeout $timeout_s "$weft" train --model mlp --factors 8 --workers 3 --servers 1 --epochs 12 --batch 512 \
            --mode asp --scheduler on --via on --aggregators 2 --replicas 1 --div-max 0.5 \
            --on-server-death promote --peer-timeout 60 "$@" >"$name.json" 2>job.log &
        run=$!
        late=
        [ -z "$victims" ] || hit "$victims" "$pattern" || late=1
        wait $run
        status=$?
        run=
        [ -n "$late" ] && [ $status -eq 0 ] || break
    done
    grep '^weft run: ' job.log
    return $status
}
# Only the replica of a promoted server is restarted: every process that reports has run from start
# to end.
tap_run "training with all features succeeds" trained calm "" "" --json
tap_run "training in pieces whose scheduler, aggregator and server die succeeds" trained hit "scheduler-0 aggregator-0 server-0" \
    '^epoch 1/' --json --cut-through 4
tap_like "the replica was promoted" "$(cat job.log)" 'which was its replica, after [0-9]* ms$'
tap_run "the loss is within 0.02, each opened update is closed, the divergence within its bound" python3 -c "
import json
calm, hit = (json.load(open(name + '.json')) for name in ('calm', 'hit'))
print(calm['test_logloss'], hit['test_logloss'], hit['replicas'], hit['counters'], calm['scheduler'], hit['scheduler'])
assert abs(calm['test_logloss'] - hit['test_logloss']) < 0.02
assert calm['replicas']['promotions'] == 0 and calm['replicas']['pushes_lost'] == 0
assert hit['replicas']['promotions'] == 1 and hit['replicas']['divergence_max'] <= 0.5
for r in calm, hit:
    c = r['counters']
    assert c['shard_updates_opened'] == c['shard_updates_closed'] > 0
    assert c['sched_asked'] == c['client_updates'] > 0
c = calm['counters']
assert c['shard_updates_closed'] == c['client_updates'] == c['sched_granted'] + c['sched_direct']
assert hit['counters']['shard_pushes'] > hit['counters']['shard_updates_closed']
assert calm['scheduler']['planned']['granted'] > 0 and hit['scheduler']['planned'] is None"

tap_run "training in pieces in which one process of each role dies succeeds" trained all \
    "worker-1 scheduler-0 aggregator-0 server-0 replica-0" '"event":"epoch","epoch":1,' --restart 20 --cut-through 4
tap_is "each process is killed once" "$(grep -c 'was killed by signal 9.*\(restart 1 of 20\|promoting its replica\)$' job.log)" 5
loss=$(sed -n 's/^\[worker 0\] {"event":"test","epoch":12,"test_logloss":\([0-9.]*\).*/\1/p' all.json job.log)
tap_run "the loss is within 0.02 ($loss)" python3 -c "
import json
assert abs(json.load(open('calm.json'))['test_logloss'] - $loss) < 0.02"

tally_jobs "$jobs" "$seed" "succeeds, counts each push once and loses no more than its bound"
tap_done
