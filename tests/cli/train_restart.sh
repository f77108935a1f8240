#!/bin/sh
# `weft train --restart`: workers and a server are killed, and the job reaches the same result. A
# job that ends before the kill is not a failure: it was too fast, or the shell was not scheduled.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
cd "$tap_tmp" || exit 1

train() {
    "$WEFT_BIN" train --data "$WEFT_SOURCE_ROOT/data/adult/adult.data.zst" --format adult "$@"
}

# File names may contain a blank.
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
tap_run "it ends well" wait $run
tap_like "as weft run does" "$(cat out)" '^weft run: all 2 workers have finished$'
if [ "$(grep -c '; restart [1-9] of 9$' out)" -ge 3 ]; then
    tap_pass "those that were killed were started again"
else
    tap_skip "those that were killed were started again" "the job was over before"
fi
auc=$(sed -n 's/^\[worker 0\] {"event":"test","epoch":8,.*"test_auc":\([0-9.]*\)}$/\1/p' out | tail -n 1)
if awk "BEGIN { exit !(${auc:-0} >= 0.9) }"; then
    tap_pass "the model is tested, and good"
else
    tap_fail "the model is tested, and good" "AUC \"$auc\"
$(cat out)"
fi
tap_run "and written down" test -s model
tap_run "checkpoints are in the folder that was named" test -n "$(ls "c kpt")"
tap_run "the next one goes on from it" train --workers 2 --servers 1 --restart 1 --resume \
    --checkpoint "c kpt" --checkpoint-every 40 --epochs 9
tap_like "and not at the beginning" "$(cat run.out)" '^\[worker 0\] {"event":"ready".*"epoch":[1-8][,}]'

# ---- incompatible options ----
refused() {
    tap_run_fails "$1" 2 train --restart 2 $2
    tap_like "in words" "$(cat run.out)" "$3"
}
refused "no checkpoint" "" '--restart requires --checkpoint'
refused "a report" "--checkpoint other --report r.json" '--report cannot be used with --restart'
refused "records" "--checkpoint other --records r.db" '--records cannot be used with --restart'
refused "a target" "--checkpoint other --until-auc 0.9" 'until-auc cannot be used with --restart'
refused "a durability of its own" "--checkpoint other --durability most" 'must be none or replay'
tap_run_fails "two arguments for the servers in one of ours" 1 train --restart 2 --checkpoint other \
    --checkpoint-every "40 --restore"
tap_like "are one to them" "$(cat run.out)" 'checkpoint-every 40 --restore is not allowed'
tap_run_fails "durability of what?" 2 train --durability none
tap_done
