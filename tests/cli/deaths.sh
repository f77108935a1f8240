#!/bin/sh
# Death of a worker: clocks block until it rejoins, continue without it, or the job ends. A worker that
# starts late joins at the clock in progress.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/cli/tally_job.sh
. "$WEFT_SOURCE_ROOT/tests/cli/tally_job.sh"

mkdir wait shrink late fail asp alone
tap_run "wait (default): the job succeeds although a worker dies and is restarted" env TALLY_DIE="1 3" \
    "$weft" run --peer-timeout 60 -n 3 -s 2 --restart 1 -- "$tally" work wait 20
tap_like "it resumes after the clock of its last push" "$(cat wait/log.1)" '^start 3$'
tap_run "every push counts once" "$tally" check wait 3 20 2

tap_run "shrink: the job succeeds, the dead worker is not restarted" env TALLY_ALONE=1 TALLY_TOGETHER=1 \
    TALLY_DIE="1 3" \
    "$weft" run --peer-timeout 60 -n 3 -s 2 --on-worker-death shrink -- "$tally" work shrink 20
tap_like "the supervisor reports the death" "$(cat run.out)" \
    '^weft run: worker 1 was killed by signal 9 (Killed); the others continue$'
tap_like "the other workers finish" "$(cat run.out)" '^weft run: all 2 workers have finished$'
tap_is "worker 0 has replies for all 20 clocks" "$(grep -c ack shrink/log.0)" 20
tap_run "shrink with SSP: the job succeeds" env TALLY_ALONE=1 TALLY_TOGETHER=1 TALLY_DIE="1 3" TALLY_MODE=ssp:2 \
    "$weft" run --peer-timeout 60 -n 3 --on-worker-death shrink -- "$tally" work asp 20

TALLY_ALONE=1 TALLY_LATE=2 "$weft" run --peer-timeout 60 -n 3 --on-worker-death shrink -- "$tally" work late 20 >late.out 2>&1 &
run=$!
tap_run "no worker waits for one that has not started" tap_until test -f late/values
touch late/late
wait $run
tap_is "the job succeeds with a worker that starts late" $? 0
tap_like "it joins at the clock in progress" "$(cat late/log.2)" '^start 20$'

tap_run_fails "fail: a death ends the job" 1 env TALLY_DIE="1 3" \
    "$weft" run --peer-timeout 60 -n 2 --restart 5 --on-worker-death fail -- "$tally" work fail 20
tap_like "the error names the worker" "$(cat run.out)" 'worker 1 \(was killed by signal 9\|has died, and --on-worker-death\)'

# Without a supervisor: the server detects the broken connection.
"$weft" keygen key >/dev/null
"$weft" server --key-file key --port 0 --workers 2 --transport tcp --on-worker-death fail \
    >server.out 2>&1 &
server=$!
tap_run "a server without a supervisor starts" tap_until grep -q '^shard 0' server.out
WEFT_JOB_KEY=$(cat key)
WEFT_SERVERS=$(sed -n 's/^shard 0 of 1: //p' server.out)
export WEFT_JOB_KEY WEFT_SERVERS
TALLY_DIE="1 1" TALLY_TRANSPORT=tcp WEFT_RANK=1 WEFT_WORKERS=2 "$tally" work alone 5 >/dev/null 2>&1
wait $server
tap_is "it exits with 1 when its worker dies" $? 1
tap_like "its error names the worker" "$(cat server.out)" \
    '^weft server: worker 1 has died, and --on-worker-death is fail$'
tap_run_fails "an unknown --on-worker-death is rejected" 2 "$weft" server --on-worker-death die
tap_like "the error lists the values" "$(cat run.out)" 'it must be wait, shrink or fail'
tap_done
