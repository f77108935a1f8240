#!/bin/sh
# `weft train --restart`: workers and a server are killed, and the job reaches the same quality. A
# job that ends before a kill is no failure: the job was too fast, or the shell was not scheduled.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
cd "$tap_tmp" || exit 1

train() {
    "$WEFT_BIN" train --data "$WEFT_SOURCE_ROOT/data/adult/adult.data.zst" --format adult "$@"
}

# The checkpoint directory contains a space.
train --workers 2 --servers 2 --restart 9 --checkpoint "c kpt" --checkpoint-every 40 --epochs 8 \
    --save model --peer-timeout 60 >out 2>&1 &
run=$!

over() { ! kill -0 $run 2>/dev/null; }
again_or_over() { tap_lines "$2" "^weft run: $1 was killed" out || over; }

# kill_one <role and rank> <number of this kill>: while the process is running
kill_one() {
    tap_until eval "tap_lines $2 '^weft run: $1: pid' out || over"
    over || kill -KILL "$(sed -n "s/^weft run: $1: pid //p" out | tail -n 1)" 2>/dev/null
    tap_until again_or_over "$1" "$2"
}

kill_one "worker 1" 1
kill_one "server 0" 1
kill_one "worker 0" 1
kill_one "server 0" 2
tap_run "the job exits with 0" wait $run
tap_like "the supervisor reports that all workers have finished" "$(cat out)" '^weft run: all 2 workers have finished$'
if [ "$(grep -c '; restart [1-9] of 9$' out)" -ge 3 ]; then
    tap_pass "killed processes are restarted"
else
    tap_skip "killed processes are restarted" "the job ended before all kills"
fi
auc=$(sed -n 's/^\[worker 0\] {"event":"test","epoch":8,.*"test_auc":\([0-9.]*\)}$/\1/p' out | tail -n 1)
if awk "BEGIN { exit !(${auc:-0} >= 0.9) }"; then
    tap_pass "the model is tested, with an AUC of at least 0.9"
else
    tap_fail "the model is tested, with an AUC of at least 0.9" "AUC \"$auc\"
$(cat out)"
fi
tap_run "the model is saved" test -s model
tap_run "checkpoints are in the directory of --checkpoint" test -n "$(ls "c kpt")"
tap_run "--resume continues from the checkpoint" train --workers 2 --servers 1 --restart 1 --resume \
    --checkpoint "c kpt" --checkpoint-every 40 --epochs 9
tap_like "it does not start at epoch 0" "$(cat run.out)" '^\[worker 0\] {"event":"ready".*"epoch":[1-8][,}]'

# ---- incompatible options ----
refused() {
    tap_run_fails "$1 is rejected with --restart" 2 train --restart 2 $2
    tap_like "the error names the option" "$(cat run.out)" "$3"
}
refused "no --checkpoint" "" '--restart requires --checkpoint'
refused "--report" "--checkpoint other --report r.json" '--report cannot be used with --restart'
refused "--records" "--checkpoint other --records r.db" '--records cannot be used with --restart'
refused "--until-auc" "--checkpoint other --until-auc 0.9" 'until-auc cannot be used with --restart'
refused "--durability most" "--checkpoint other --durability most" 'must be none or replay'
tap_run_fails "an option value with a blank is passed to the servers as one argument" 1 train --restart 2 --checkpoint other \
    --checkpoint-every "40 --restore"
tap_like "the servers reject it as one value" "$(cat run.out)" 'checkpoint-every 40 --restore is not allowed'
tap_run_fails "--durability without --restart is rejected" 2 train --durability none
tap_done
