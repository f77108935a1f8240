#!/bin/sh
# `weft train --compute`: step times follow a distribution, in every mode, over UDP, TCP and aggregators; a
# worker that waits for the end of its step makes progress meanwhile; invalid distributions are rejected.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_DATA_DIR WEFT_JOB_KEY WEFT_SCHEDULER WEFT_VIA
unset WEFT_PEER_TIMEOUT_S

# train <name> <options>: the report is <name>.json. 24 steps in all.
train() {
    name=$1
    shift
    "$WEFT_BIN" train --model mlp --factors 8 --workers 4 --servers 2 --epochs 1 --batch 1024 \
        --loss-bound 0 --report "$name.json" "$@" >"$name.out" 2>"$name.err"
}

# holds <what> <name> <jq expression>
holds() {
    tap_is "$1" "$(jq "$3" "$2.json")" true
}

echo '{"name": "two tenths", "step_ms_min": 200, "step_ms_max": 200}' >fixed.file
echo '{"name": "one in four", "step_ms_min": 100, "step_ms_max": 120, "slow_workers": 0.25,
    "slow_worker_factor": 4}' >slow.file

tap_run "a job without --compute succeeds" train free --workers 2 --save free.model
holds "without --compute no worker waits" free '.compute == null and .counters.compute_waits_ns == null'
tap_run "the same job with --compute succeeds" train bsp --workers 2 --compute fixed.file --save bsp.model
tap_run "bsp: --compute does not change the model" cmp free.model bsp.model
holds "no step is shorter than the time of the setting" bsp '.step_ms.count == 24 and .step_ms.mean >= 200 and
    .wall_s >= 12 * 0.2'
holds "the JSON report has the setting and the waited time" bsp '.compute.setting == "two tenths" and
    .compute.scale == 1 and .compute.waited_s > 0.5 and .compute.waited_s < 2 * .wall_s'
tap_like "the text report has the waited time" "$(cat bsp.out)" '^  waited for --compute  *[0-9.]* s'

tap_run "asp, one slow worker, --compute-scale: the job succeeds" train asp --mode asp --compute slow.file --compute-scale 0.5
holds "the slow worker's steps take four times as long" asp '.compute.scale == 0.5 and .step_ms.max >= 200 and
    .step_ms.mean >= (3 * 50 + 200) / 4'
tap_run "ssp, TCP, a progress thread, a built-in setting: the job succeeds" train ssp --mode ssp:1 --transport tcp \
    --progress-thread engine --compute CS2 --compute-scale 0.02
holds "steps take as long as the built-in setting says" ssp '.compute.setting == "CS2" and .step_ms.mean >= 38'
tap_run "a scheduler and aggregators: the job succeeds" train planned --mode asp --scheduler on --via on \
    --aggregators 2 --servers 1 --compute slow.file
holds "each update is closed once" planned '.step_ms.mean >= 100 and
    .counters.shard_updates_closed == .counters.client_updates'

# One step of 10 s per worker. The peer timeout is 4 s; behind an aggregator workers park their
# connections to servers after a second.
tap_run "a step of 10 s with a peer timeout of 4 s: the job succeeds" train long --batch 14000 --workers 2 --peer-timeout 4 \
    --keepalive-ms 500 --compute fixed --compute-scale 5
holds "the steps take 10 s" long '.step_ms | .count == 2 and .mean >= 10000'
tap_run "the same behind an aggregator: the job succeeds" train parked --batch 14000 --workers 2 --peer-timeout 4 --via on \
    --keepalive-ms 500 --compute fixed --compute-scale 5
holds "the steps take 10 s" parked '.step_ms | .count == 2 and .mean >= 10000'

# refused <text on stderr> <arguments...>: exit status 2, nothing on stdout.
refused() {
    sentence=$1
    shift
    status=0
    "$WEFT_BIN" "$@" >out 2>err || status=$?
    if [ "$status" = 2 ] && [ ! -s out ] && grep -q -e "$sentence" err; then
        tap_pass "rejected: weft $*"
    else
        tap_fail "rejected: weft $*" "exit $status, expected 2 and: $sentence
$(cat out err)"
    fi
}
echo '{"step_ms_mn": 3}' >key.file
echo '{"step_ms_min": 30, "step_ms_max": 20}' >order.file
refused 'not a built-in setting (fixed, .*CS3), and not a readable file' train --compute nothing
refused 'did you mean "step_ms_min"' train --compute key.file
refused 'minimum time of a step is above the maximum' train --compute order.file
refused '--compute-scale requires --compute' train --compute-scale 2
refused '--compute-scale 101 is not allowed' train --compute CS1 --compute-scale 101
refused '--compute-scale "0".*above 0' train --compute CS1 --compute-scale 0
refused 'not a built-in setting' worker --servers 127.0.0.1:9 --compute nothing
refused '--compute-scale requires --compute' worker --servers 127.0.0.1:9 --compute-scale 2
tap_done
