#!/bin/sh
# Servers that are frozen (SIGSTOP) for longer than their lease, under `weft run --restart`: the
# supervisor replaces them; they resume after their successor's first checkpoint, detect that they
# were replaced, and exit. Then the successor is killed, too, to reveal any damage to checkpoints
# and journals by the resumed process. Every acknowledged push counts once.
#
#     WEFT_FREEZES=30 meson test -C build cli_freezes -t 0    30 jobs, of two freezes each
#     WEFT_FREEZES_SEED=17 WEFT_FREEZES=1 ...                 job 17 alone
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/cli/tally_job.sh
. "$WEFT_SOURCE_ROOT/tests/cli/tally_job.sh"
jobs=${WEFT_FREEZES:-1}
seed=${WEFT_FREEZES_SEED:-1}
clocks=300
timeout_s=600 # seconds; a longer wait means that the job hangs
lease_ms=1000
# A sanitizer's library must be preloaded first.
preload=$WEFT_FREEZER_LIB
[ "$WEFT_BUILD_NAME" = release ] || preload=
run=
tap_at_exit '[ -z "$run" ] || kill "$run" 2>/dev/null; wait'

# draw <seed>: a line of shell: workers, servers, mode, every, and events as "KIND:PUSHES ...". A
# freeze is "any" (at that number of pushes) or "stepN" (before the N-th system call of the next
# checkpoint that it writes: tests/cli/freezer.c). With "kill" after it the successor is killed when
# the frozen process has ended, with "dead" right before it resumes.
draw() {
    awk -v seed="$1" -v clocks=$clocks 'BEGIN {
        srand(seed)
        for (i = 0; i < 10; i++) rand()
        w = 1 + int(rand() * 3); s = 1 + int(rand() * 2)
        split("bsp ssp:2 asp", modes, " ")
        for (k = 1; k <= 2; k++) {
            # The first checkpoints exist, and enough clocks remain for more.
            at = int(w * clocks * (0.15 + 0.35 * (k - 1) + 0.15 * rand()))
            x = rand()
            if (x < 0.25) events = events "worker-" int(rand() * w) ":" at " "
            else if (x < 0.4) events = events "coordinator-0:" at " "
            how = (rand() < 0.25 ? "any" : "step" 1 + int(rand() * 14))
            x = rand()
            how = how (x < 0.4 ? "+kill" : x < 0.8 ? "+dead" : "")
            events = events "freeze-" int(rand() * s) "-" how ":" at " "
        }
        printf "workers=%d servers=%d mode=%s every=%d events=\"%s\"\n", w, s, modes[1 + int(rand() * 3)], 5 + int(rand() * 10), events
    }'
}

pushes() { cat log/log.* 2>/dev/null | grep -c '^ack'; }

pid_of() { # pid_of <role> <rank>: pid of the newest process in that slot
    sed -n "s/^weft run: $1 $2: pid //p" job.log | tail -n 1
}

# wait_until <run's pid> <command...>: true when the command succeeds; false if the run ends first,
# or the workers have finished (on a slow machine), so that no further checkpoint is written
wait_until() {
    run_pid=$1
    shift
    until "$@"; do
        tap_alive "$run_pid" && ! is_through || return 1
        sleep 0.02
    done
}

is_through() { [ "$(pushes)" -ge $((workers * (clocks - 1))) ]; }
has_pushes() { [ "$(pushes)" -ge "$1" ]; }
has_successor() { [ "$(pid_of server "$1")" != "$2" ]; }

# has_checkpoint <server> <pid>: true if this process has written a checkpoint
has_checkpoint() {
    awk -v start="weft run: server $1: pid $2" -v mark="weft run: server $1: checkpoint [0-9]*: clock" '
        $0 == start { on = 1 } on && $0 ~ mark { found = 1 } END { exit !found }' job.log
}

is_stopped() {
    [ "$(tap_state "$1")" = T ]
}

# is_serving <server>: true if the newest process in its slot is alive and has written a checkpoint
is_serving() {
    serving=$(pid_of server "$1")
    tap_alive "$serving" && has_checkpoint "$1" "$serving"
}

# freeze_one <run's pid> <server> <how>: 0 if the frozen process resumed after a checkpoint of its
# successor, detected that it was replaced, and exited; or if the workers finished first
freeze_one() {
    wait_until "$1" is_serving "$2" || is_through || return 1
    ! is_through || return 0
    frozen=$(pid_of server "$2")
    case $3${preload:-none} in
    step*none) kill -STOP "$frozen" || return 1 ;;
    step*)
        step=${3#step}
        echo "${step%+*}" >freezer/server.new && mv freezer/server.new "freezer/server-$2"
        if ! wait_until "$1" is_stopped "$frozen"; then
            rm -f "freezer/server-$2"
            kill -STOP "$frozen" || return 1
        fi
        ;;
    *) kill -STOP "$frozen" || return 1 ;;
    esac
    echo "# server $2 (pid $frozen) frozen ($3) at $(pushes) pushes"
    until has_successor "$2" "$frozen"; do
        tap_alive "$1" || return 1
        sleep 0.02
    done
    successor=$(pid_of server "$2")
    wait_until "$1" has_checkpoint "$2" "$successor" && full=$((full + 1)) || is_through || return 1
    case $3 in
    *+dead)
        echo "# the successor is killed at $(pushes) pushes"
        kill -KILL "$successor" 2>/dev/null
        ;;
    esac
    kill -CONT "$frozen"
    echo "# it resumes, its successor is pid $successor, at $(pushes) pushes"
    until grep -q "the process that was replaced (pid $frozen) ended with exit status 1" job.log; do
        tap_alive "$1" || return 1
        sleep 0.02
    done
    case $3 in
    *+kill)
        echo "# the successor is killed at $(pushes) pushes"
        kill -KILL "$(pid_of server "$2")" 2>/dev/null
        ;;
    esac
}

# one_job <seed>
one_job() {
    eval "$(draw "$1")"
    echo "# seed $1: $workers workers, $servers servers, $mode, checkpoint every $every: $events"
    rm -rf job && mkdir -p job/log job/freezer && cd job || return 1
    TALLY_MODE=$mode TALLY_PAUSE_MS=30 TALLY_PEER_MS=2000 TALLY_HOLD=$((clocks - 1)) \
        FREEZER=$PWD/freezer LD_PRELOAD=$preload \
        timeout $timeout_s "$weft" run --peer-timeout 2 --lease-ms $lease_ms -n "$workers" -s "$servers" \
        --restart 100 --durability replay --server-options \
        "--checkpoint $PWD/checkpoints --checkpoint-every $every" -- \
        "$tally" work log $clocks >job.log 2>&1 &
    run=$!
    good=true
    full=0 # number of freezes after which the successor wrote a checkpoint before the frozen process resumed
    for event in $events; do
        wait_until $run has_pushes "${event#*:}" || is_through || good=false
        what=${event%:*}
        case $what in
        freeze-*)
            what=${what#freeze-}
            freeze_one $run "${what%%-*}" "${what#*-}" || good=false
            ;;
        *)
            kill -KILL "$(pid_of "${what%-*}" "${what#*-}")" 2>/dev/null
            echo "# $what killed at $(pushes) pushes"
            ;;
        esac
    done
    : >log/go
    wait $run
    status=$?
    run=
    : >log/restored
    TALLY_REPLAY=1 "$tally" check log "$workers" $clocks "$servers" >check.out 2>&1
    checked=$?
    tail -n 1 check.out | sed 's/^/# /'
    echo "# full freezes: $full"
    unreadable=0
    # Nothing damaged a checkpoint. One that another server did not finish in time is not valid, which is no damage.
    ! grep 'cannot be used\|damaged' job.log | grep -qv 'is missing$\|were never written$' ||
        unreadable=1
    if [ $status -ne 0 ] || [ $checked -ne 0 ] || [ $unreadable -ne 0 ] || ! $good; then
        sed 's/^/# run: /' job.log | grep -v 'checkpoint [0-9]*: clock' | tail -n 40
        head -n 20 check.out | sed 's/^/# check: /'
    fi
    cd .. || return 1
    $good && [ $full -gt 0 ] && [ $status -eq 0 ] && [ $checked -eq 0 ] && [ $unreadable -eq 0 ]
}

# Without checkpoints the two processes share only the workers.
freeze_alone() { # freeze_alone <folder>: enters the folder; sets run, result and frozen
    workers=2
    mkdir -p "$1/log" && cd "$1" || return 1
    TALLY_PAUSE_MS=20 TALLY_PEER_MS=2000 TALLY_HOLD=$((clocks - 1)) timeout $timeout_s "$weft" run \
        --peer-timeout 2 --lease-ms $lease_ms -n $workers --restart 3 -- "$tally" work log $clocks \
        >job.log 2>&1 &
    run=$!
    result=0
    wait_until $run has_pushes 50 || result=1
    frozen=$(pid_of server 0)
    kill -STOP "$frozen"
}
end_alone() { # leaves the folder, returns the result
    : >log/go
    wait $run || result=1
    run=
    cat job.log
    cd .. && return $result
}
alone() {
    freeze_alone alone
    at=$(pushes)
    wait_until $run has_pushes $((at + 50)) || result=1
    tap_alive "$frozen" || result=1 # it must not have been killed
    kill -CONT "$frozen"
    wait_until $run grep -q "the process that was replaced (pid $frozen) ended with exit status 1" \
        job.log || result=1
    end_alone
}
dead() {
    freeze_alone dead
    wait_until $run grep -q 'has been silent for its lease; its slot is free' job.log || result=1
    kill -KILL "$frozen"
    wait_until $run has_successor 0 "$frozen" || result=1
    at=$(pushes)
    wait_until $run has_pushes $((at + 200)) || result=1 # longer than half a lease
    end_alone
}
tap_run "a frozen server is replaced, and the job continues" alone
tap_like "the supervisor reports it" "$(cat run.out)" \
    '^weft run: the lease of server 0 (pid [0-9]*) has expired; it is replaced; restart 1 of 3$'
tap_like "the resumed process reports that it was replaced" "$(cat run.out)" \
    '^weft run: server 0 (replaced): the coordinator .* replaced this process: another process has taken'
tap_run "a frozen server that dies after its lease has expired is restarted" dead
tap_is "it is restarted once" "$(grep -c '^weft run: server 0: pid' run.out)" 2

tally_jobs "$jobs" "$seed" "succeeds, and every push counts once"
tap_done
