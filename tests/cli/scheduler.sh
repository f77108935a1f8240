#!/bin/sh
# `weft train --scheduler`: the same model as without a scheduler, drops with a tight delay bound, a scheduler that
# is killed or frozen during the job, and usage errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR WEFT_SCHEDULER WEFT_MEMBER WEFT_JOB WEFT_VIA

# launch <name> <options>: a job in the background, $job; an update has 250 KB, enough to need a grant.
launch() {
    name=$1
    shift
    "$WEFT_BIN" train --model mlp --factors 8 --workers 2 --servers 2 --epochs 2 --batch 1024 \
        --loss-bound 0 --report "$name.json" "$@" >"$name.out" 2>"$name.err" &
    job=$!
}
# train <name> <options>: the same until its end
train() {
    launch "$@"
    wait "$job"
}

# holds <what> <name> <jq expression>
holds() {
    tap_is "$1" "$(jq "$3" "$2.json")" true
}

# Jobs of which only the figures matter do not run under a sanitizer, because the other jobs here start
# the same processes with the same options.
if [ "$WEFT_BUILD_NAME" = release ]; then
    figures=1
    frozen_epochs=60
else
    figures=
    frozen_epochs=30
fi

tap_run "a job without a scheduler succeeds" train off --save off.model
WEFT_SCHEDULER=127.0.0.1:9
export WEFT_SCHEDULER
tap_run "a job with WEFT_SCHEDULER and without --scheduler succeeds" train named
unset WEFT_SCHEDULER
holds "it uses no scheduler" named '.scheduler == null and .counters.sched_asked == null and
    .counters.client_updates == 0'
tap_run "a job with --scheduler on succeeds" train on --scheduler on --save on.model
tap_run "bsp: the same model, bit for bit" cmp off.model on.model
holds "off: no grant is requested, and no update is counted" off '.scheduler == null and
    .counters.sched_asked == null and .counters.client_updates == 0 and
    .counters.shard_updates_opened == 0'
holds "on: every update is requested and granted" on '.counters | .sched_asked == 48 and
    .sched_granted == 48 and .client_updates == 48 and .sched_direct == 0'
holds "on: each update is closed once at both servers" on '.counters | .shard_updates_opened == 96 and
    .shard_updates_closed == 96 and .shard_updates_late == 0'
holds "on: the scheduler counted each grant and commit" on '.scheduler.planned | .granted == 48 and .committed == 48 and
    .dropped == 0 and .reports_refused == 0'

# If four workers read the same model, three updates have a delay above 1 at their commit or later.
tap_run "asp with tau_max 1 succeeds" train asp --mode asp --tau-max 1 --scheduler on \
    --workers 4 --servers 1 --batch 512
holds "updates were dropped" asp '.counters.client_updates_dropped > 10'
holds "the scheduler counted the drops" asp '.scheduler.planned.dropped >= .counters.client_updates_dropped'
holds "the other updates are closed, or rejected as late" asp '.counters |
    .client_updates == .shard_updates_closed + .shard_updates_late + .client_updates_dropped'
holds "no planned delay exceeds tau_max" asp '.scheduler | .tau_max == 1 and .planned.delay_max <= 1'
holds "the AUC is above 0.7" asp '.test_auc > 0.7'

# lda: the counts of updates that were dropped are pushed later. The job itself fails unless the
# servers count every token once.
awk 'BEGIN { srand(1); print 400; print 600; print 20000
    for (d = 1; d <= 400; d++) for (i = 0; i < 50; i++) print d, 1 + (d * 7 + i * 11) % 600, 1 }' >docword.txt
# lda: repeated if few updates were dropped, as where the scheduler gets no processor for a second
lda() {
    for _ in 1 2 3; do
        "$WEFT_BIN" train --model lda --format docword --data docword.txt --factors 64 --mode asp --tau-max 1 \
            --scheduler on --workers 4 --servers 2 --batch 64 --epochs 6 --report lda.json --quiet || return
        [ "$(jq '.counters.client_updates_dropped > 5 and .counters.client_updates > 48' lda.json)" = false ] || break
    done
}
tap_run "lda with tau_max 1 succeeds" lda
holds "lda: updates were dropped, and what was kept of them was pushed in updates of no step" lda '.counters |
    .client_updates_dropped > 5 and .client_updates > 48'
holds "lda: no planned delay exceeds tau_max" lda '.scheduler.planned.delay_max <= 1'

# delay <name>: the mean delay measured by the shards, in hundredths.
delay() {
    jq '.counters | 100 * .shard_updates_delay_sum / .shard_updates_opened | floor' "$1.json"
}
# Read admission: the delay is at most the number of other workers between read and commit, so it is
# below the number of credits.
if [ -n "$figures" ]; then
    tap_run "asp with eight workers succeeds" train all --mode asp --scheduler on --workers 8 --servers 1 --batch 256
    tap_run "asp with eight workers and two read credits succeeds" train credits --mode asp --scheduler on --read-credits 2 --workers 8 \
        --servers 1 --batch 256
    holds "reads wait for their credits" credits '.counters.sched_reads_waited > 100 and
        .scheduler.planned.reads_admitted > 100 and .scheduler.read_credits == 2'
    holds "no read is sent without a credit" credits '.counters.sched_reads_direct == 0'
    holds "each update is closed once, and none is late" credits '.counters |
        .shard_updates_closed == .client_updates and .shard_updates_late == 0'
    holds "without --read-credits no read waits" all '.counters.sched_reads_waited == 0 and
        .scheduler.planned.reads == 0'
    tap_is "two credits halve the mean delay, at least ($(delay credits) of $(delay all))" \
        "$((2 * $(delay credits) <= $(delay all)))" 1
    holds "the scheduler's mean delay is at most 2" credits '.scheduler.planned.delay_mean <= 2'
fi
tap_run "ssp with one read credit succeeds" train slow --mode ssp:1 --scheduler on --read-credits 1 --workers 4 \
    --servers 2 --batch 512
holds "no read is sent without a credit, and the scheduler always replied" slow '.counters.sched_reads_direct == 0 and
    .counters.sched_timeouts == 0'
tap_run "read credits with replicas: the job succeeds" train replicated --mode asp --scheduler on --read-credits 1 --workers 2 \
    --servers 1 --replicas 1 --div-max 1 --on-server-death promote
holds "reads wait for their credits" replicated '.counters.sched_reads_waited > 10 and
    .scheduler.read_credits == 1'
holds "transfers to replicas are granted" replicated '.scheduler.planned.replica_transfers > 5 and
    .scheduler.planned.replica_transfers <= .replicas.transfers'
tap_run "updates too short for a grant: the job with read credits succeeds" train short --model lr --mode asp --scheduler on \
    --read-credits 1 --workers 4 --servers 1 --batch 512
holds "they return their credits" short '.counters | .sched_asked == 0 and .sched_reads_waited > 50 and
    .sched_reads_direct == 0'

# Planned sums. On fast links the members of a sum are random; each update counts once.
tap_run "asp with two aggregators succeeds" train sums --mode asp --scheduler on --via on --aggregators 2 \
    --workers 4 --servers 1 --batch 512
holds "each update is requested and granted" sums '.counters | .sched_asked == 96 and .sched_granted == 96'
holds "each update is closed once" sums '.counters | .shard_updates_opened == 96 and .shard_updates_closed == 96 and
    .shard_pushes == 96'

tap_run "cut-through succeeds" "$WEFT_BIN" train --model mlp --mode asp --scheduler on --via on --aggregators 2 \
    --workers 4 --servers 2 --epochs 1 --cut-through 4 --report cut.json
holds "updates are cut" cut '.counters | .shard_pushes > .shard_updates_opened'
holds "each update is closed once at each of the two shards" cut '.counters |
    .shard_updates_opened == 2 * .client_updates and .shard_updates_closed == 2 * .client_updates'

if [ -n "$figures" ]; then
    tap_run "asp with two aggregators and a delay bound succeeds" train bounded --mode asp --scheduler on --via on \
        --aggregators 2 --workers 4 --servers 1 --batch 512 --tau-max 4
    holds "each update is requested, and granted or dropped" bounded '.counters | .sched_asked == 96 and
        .sched_granted + .sched_dropped == 96'
    holds "each update is closed once, rejected as late, or dropped, with delays within the bound" bounded '.counters |
        .shard_updates_closed + .shard_updates_late + .client_updates_dropped == 96 and
        .shard_updates_delay_max <= 4'
fi

# kill_in <name> <process> <options>: train, and kill a process in the second epoch. If the job ends
# before the kill, a longer one is started. Sets $epochs and $status.
kill_in() {
    what=$1
    process=$2
    shift 2
    for epochs in 12 60 300 1500; do
        : >"$what.out"
        launch "$what" --epochs "$epochs" "$@"
        tap_at_exit 'kill $job 2>/dev/null; wait'
        tap_until grep -q '^epoch 1' "$what.out"
        kill -9 "$(sed -n "s/^$process: pid //p" "$what.out")" 2>/dev/null
        wait "$job"
        status=$?
        ! grep -q "^${process% *} (pid [0-9]*) was killed" "$what.out" || return 0
        [ $status -eq 0 ] || return 1
    done
    return 1
}

kill_in dies "aggregator 1" --mode asp --scheduler on --via on --aggregators 2 --workers 4 --servers 1 \
    --batch 512
tap_is "an aggregator is killed" $? 0
tap_is "the job exits with 0" "$status" 0
holds "each update is closed once" dies '.counters | .shard_updates_closed == .client_updates and
    .shard_pushes == .client_updates'

kill_in killed "scheduler 0" --scheduler on
tap_is "the scheduler of a job is killed" $? 0
tap_is "the job exits with 0" "$status" 0
tap_like "the job reports it" "$(cat killed.out)" 'scheduler (pid [0-9]*) was killed.*push without it'
holds "the other updates are sent without a grant" killed '.counters | .sched_direct > 10 and .sched_timeouts > 0 and
    .sched_asked == '$((24 * epochs))' and .sched_granted + .sched_direct == .sched_asked'
holds "each update is closed once" killed ".counters.shard_updates_closed == $((48 * epochs))"
holds "the report has no figures of the killed scheduler" killed '.scheduler.planned == null'
kill_in admits "scheduler 0" --scheduler on --mode asp --read-credits 1 --workers 4
tap_is "a scheduler with read credits is killed" $? 0
tap_is "the job exits with 0" "$status" 0
holds "reads no longer wait" admits '.counters | .sched_reads_waited > 10 and
    .sched_reads_waited < .client_updates and .sched_reads_direct <= 4'

# granted: number of updates granted so far.
granted() {
    python3 -c 'import sys, urllib.request
for line in urllib.request.urlopen(sys.argv[1], timeout=5).read().decode().splitlines():
    if line.startswith("weft_sched_granted_total "):
        print(int(float(line.split()[1])))' "$(sed -n 's/^metrics: //p' scheduler.out)"
}

# has_granted <n>: true if more than n updates were granted.
has_granted() {
    [ "$(granted)" -gt "$1" ]
}

tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY
# begin <port>: start a scheduler; 0 = any port. The shell in the background empties scheduler.out, perhaps
# after the first look at it, so the lines of the scheduler before are removed first.
begin() {
    : >scheduler.out
    "$WEFT_BIN" scheduler --port "$1" --metrics 0 >scheduler.out 2>scheduler.err &
    scheduler=$!
    tap_until grep -q '^metrics: ' scheduler.out
}

# grants <n>: waits until more than n updates were granted; false if the job ends before
grants() {
    until has_granted "$1"; do
        tap_alive "$job" || return 1
        sleep 0.05
    done
}

# disturb: the scheduler of the job is frozen, then killed and restarted; sets first, again and anew to 1 if it grants
# updates before, after, and after that
disturb() {
    grants 20 && first=1 || return
    kill -STOP "$scheduler"
    sleep 3
    kill -CONT "$scheduler"
    before=$(granted)
    grants $((before + 20)) && again=1
    kill -9 "$scheduler"
    wait "$scheduler"
    begin "$(sed -n 's/^scheduler: .*://p' scheduler.out)"
    grants 20 && anew=1
}

for epochs in $frozen_epochs 240 960; do # a job that ends before is repeated with more epochs
    begin 0
    launch frozen --scheduler "$(sed -n 's/^scheduler: //p' scheduler.out)" --epochs $epochs --batch 512
    tap_at_exit 'kill -CONT $scheduler; kill $scheduler $job 2>/dev/null; wait'
    first='' again='' anew=''
    disturb
    wait "$job"
    status=$?
    [ $status -eq 0 ] || break
    [ -z "$first" ] || [ -z "$again" ] || [ -z "$anew" ] || break
    kill "$scheduler"
    wait "$scheduler"
done
tap_is "a separate scheduler grants updates of a job" "$first" 1
tap_is "after 3 s of SIGSTOP it grants updates again" "$again" 1
tap_is "after kill -9 and a restart it grants updates again" "$anew" 1
tap_is "the job exits with 0" "$status" 0
holds "updates were sent without a grant meanwhile" frozen '.counters | .sched_timeouts > 0 and .sched_direct > 0'
holds "each update is closed once" frozen ".counters |
    .sched_asked == $((48 * epochs)) and .shard_updates_closed == $((96 * epochs))"

# A job with another key: the scheduler refuses its processes, and it continues without a scheduler.
before=$(granted)
tap_run "another key is made" "$WEFT_BIN" keygen other.key
(
    WEFT_JOB_KEY=$(cat other.key)
    export WEFT_JOB_KEY
    train stranger --mode asp --scheduler "$(sed -n 's/^scheduler: //p' scheduler.out)"
)
tap_is "a job with another key than the scheduler's exits with 0" $? 0
holds "none of its updates is granted" stranger '.counters | .sched_granted == 0 and .sched_direct == .sched_asked and
    .sched_asked > 10'
tap_is "the scheduler granted nothing" "$(granted)" "$before"
kill "$scheduler"
wait "$scheduler"
tap_is "the scheduler exits with 0" $? 0

# The scheduler of a small job is its coordinator, too: the processes find each other through it. A job that ends before
# an update was granted is repeated with more epochs.
for epochs in 1 8 64; do
    : >both.out
    "$WEFT_BIN" scheduler --port 0 --coordinate 0 --workers 2 --shards 1 --json >both.json 2>both.out &
    both=$!
    tap_at_exit 'kill $both $server $worker 2>/dev/null; wait'
    tap_until grep -q '^coordinator: ' both.out
    member="--coordinator $(sed -n 's/^coordinator: //p' both.out) --scheduler $(sed -n 's/^scheduler: //p' both.out)"
    learns="--model mlp --factors 8 --mode asp --batch 1024 --epochs $epochs"
    # shellcheck disable=SC2086 # options
    {
        "$WEFT_BIN" server $member --port 0 >server.out 2>&1 &
        server=$!
        "$WEFT_BIN" worker $member $learns >worker.out 2>&1 &
        worker=$!
        "$WEFT_BIN" worker $member $learns >last.out 2>&1
        last=$?
    }
    wait $worker
    first=$?
    kill $server
    wait $server
    served=$?
    kill $both
    wait $both
    status=$?
    [ "$first $last $served $status" = "0 0 0 0" ] || break
    ! jq -e '.granted > 0' both.json >jq.out || break
done
tap_is "scheduler --coordinate: a worker of its job succeeds" $last 0
tap_is "scheduler --coordinate: the other worker succeeds" $first 0
tap_is "scheduler --coordinate: the server exits with 0" $served 0
tap_is "scheduler --coordinate: it exits with 0" $status 0
tap_is "it granted updates, and refused no report" \
    "$(jq '.granted > 0 and .dropped == 0 and .reports_refused == 0' both.json)" true

# A user's program, with the scheduler from the environment and an aggregator that the plan uses.
# port_of <file>: port of shard 0 in the output of a server or an aggregator.
port_of() {
    sed -n "s/^shard 0.*://p" "$1"
}
if tap_has_python; then
    begin 0
    WEFT_SCHEDULER=$(sed -n 's/^scheduler: //p' scheduler.out)
    export WEFT_SCHEDULER
    : >server.out # here: the background shell empties it only when it gets to run
    "$WEFT_BIN" server --port 0 --workers 2 --scheduler "$WEFT_SCHEDULER" >server.out 2>&1 &
    server=$!
    tap_until grep -q "^shard 0" server.out
    "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --servers "127.0.0.1:$(port_of server.out)" --workers 2 \
        >aggregate.out 2>&1 &
    aggregator=$!
    tap_at_exit 'kill $server $aggregator 2>/dev/null; wait'
    tap_until grep -q "^shard 0" aggregate.out
    before=$(granted)
    tap_python "$(port_of server.out)" \
        "$(port_of aggregate.out)" >python.out 2>&1 <<'END'
import sys, threading, time, numpy, weft
server, via = ("127.0.0.1:" + port for port in sys.argv[1:3])
ids = numpy.arange(4096, dtype=numpy.uint64)
barrier = threading.Barrier(2)
pushed, granted = [0, 0], [0, 0]

# Updates before the connection to the scheduler exists, or while it does not reply, are sent without a grant. So
# push until ten of each worker were granted; a busy machine may need long.
end = time.monotonic() + 60
def work(rank):
    with weft.connect(server, worker=rank, workers=2, via=via, consistency="asp") as ps:
        table = ps.table(0, dim=16, optimizer="sgd", learning_rate=1.0, consistency="asp",
                         average="none")
        while granted[rank] < 10 and time.monotonic() < end:
            table.push(ids, numpy.ones((4096, 16), numpy.float32))
            table.clock()
            ps.flush()
            pushed[rank] += 1
            counters = ps.counters()
            granted[rank] = counters["updates_asked"] - counters["updates_direct"]
        barrier.wait()
        if rank == 0:
            rows = table.pull(ids)
            print("each once" if rows.min() == rows.max() == -sum(pushed) else (rows, pushed))
            print("granted", sum(granted))
        barrier.wait()

workers = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
END
    tap_is "scheduler and via in Python: each push counts once" "$(grep -x 'each once' python.out || tail -n 3 python.out)" "each once"
    got=$(sed -n 's/^granted //p' python.out)
    tap_is "at least 20 updates are granted" "$((${got:-0} >= 20))" 1
    tap_run "the scheduler counted them" tap_until has_granted $((before + ${got:-0} - 1))
    unset WEFT_SCHEDULER
    kill "$scheduler"
    wait "$scheduler"
else
    tap_skip "scheduler and via in Python" "no python3 with cffi and numpy, or not the release build"
fi

# wrong <name> <pattern> <verb and options>
wrong() {
    what=$1 pattern=$2
    shift 2
    "$WEFT_BIN" "$@" >wrong.out 2>&1
    tap_is "$what: usage error" $? 2
    tap_like "$what: the error says why" "$(cat wrong.out)" "$pattern"
}
wrong "an invalid --scheduler" 'must be the HOST:PORT printed by .weft scheduler' train --scheduler nowhere
wrong "--tau-max without a scheduler" 'tau-max requires --scheduler' train --mode asp --tau-max 3
wrong "--tau-max of a server without a scheduler" 'tau-max requires --scheduler' server --tau-max 3
wrong "--tau-max with bsp" 'requires --mode ssp or asp' train --scheduler on --tau-max 3
wrong "--link-mbps of a server without a scheduler" 'link-mbps requires --scheduler' server --link-mbps 3
wrong "--link-mbps of a worker without a scheduler" 'link-mbps requires --scheduler' worker \
    --servers 127.0.0.1:9 --link-mbps 3
wrong "--tau-max with lda and ssp" 'lda requires --mode asp' train --model lda --format docword --data d \
    --scheduler on --tau-max 3 --mode ssp:1
wrong "--scheduler with --via coordinator" 'cannot be used with --via coordinator' worker \
    --coordinator 127.0.0.1:9 --scheduler 127.0.0.1:9 --via coordinator --mode asp
wrong "--read-credits without a scheduler" 'read-credits requires --scheduler on' train --mode asp --read-credits 2
wrong "--read-credits with bsp" 'requires --mode ssp or asp' train --scheduler on --read-credits 2
wrong "more read credits than workers, train" 'more than --workers 4' train --scheduler on --mode asp --read-credits 5
wrong "more read credits than workers, scheduler" 'more than --workers 2' scheduler --workers 2 --read-credits 3
wrong "more workers than a coordinator has" 'at most 64 workers and 32 shards' scheduler --workers 65 --coordinate 0
wrong "--cut-through without --scheduler" 'cut-through requires --scheduler' train --via on --cut-through 4
wrong "--cut-through of a worker without --scheduler" 'cut-through requires --scheduler' worker \
    --servers 127.0.0.1:9 --via 127.0.0.1:9 --cut-through 4
wrong "--cut-through without --via" 'requires --scheduler, and --via' train --scheduler on --cut-through 4
wrong "--aggregators without --via on" 'requires --via on' train --aggregators 2
wrong "too many aggregators" 'aggregators' train --via on --aggregators 99
tap_done
