#!/bin/sh
# Jobs that end at a target quality (`weft train --until-...`) and comparisons of them (`weft perf compare
# --train`), on loopback.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR WEFT_JOB_KEY

# train <name> <options...>: the report is $tap_tmp/<name>.json.
train() {
    name=$1
    shift
    tap_run "train $*" "$WEFT_BIN" train --data "$WEFT_SOURCE_ROOT/data/adult/adult.data.zst" \
        --format adult --workers 4 --servers 2 "$@" --report "$tap_tmp/$name.json"
}

# holds <what> <name> <jq condition>
holds() {
    if jq -e "$3" "$tap_tmp/$2.json" >"$tap_tmp/jq.out" 2>&1; then
        tap_pass "$2: $1"
    else
        tap_fail "$2: $1" "$3
$(jq -c 'del(.counters, .latency_us, .networks[]?.cells[].runs)' "$tap_tmp/$2.json" 2>&1)"
    fi
}

# Without losses the model after a number of steps is the same, so the jobs end at the same step;
# with one worker less the batches differ. The results of different runs differ only by the order of
# sums.
train target --until-loss 0.305 --check-steps 5 --loss-bound 0 --inject-loss 0 --epochs 9
train target_tcp --until-loss 0.305 --check-steps 5 --loss-bound 0 --epochs 9 --transport tcp
train target_asp --until-auc 0.915 --check-steps 7 --epochs 9 --mode asp --inject-loss 0.05
holds "ends at the first check that reaches the target" target '.until | .reached and .loss == 0.305 and
    .auc == null and .checks[-1].test_logloss <= 0.305 and
    (.checks[:-1] | length > 0 and all(.test_logloss > 0.305)) and .steps == .checks[-1].step and
    ([.checks[].step] | . == sort) and (.training_s == .checks[-1].training_s)'
holds "checks every 5 steps and at the end of each epoch" target '(.rows_train / 4 / .batch | ceil) as $e |
    [.until.checks[].step] == [range(1; .until.steps + 1) | select(. % 5 == 0 or . % $e == 0)]'
holds "reports the model of the last check" target '.test_logloss == .until.checks[-1].test_logloss and
    .test_auc == .until.checks[-1].test_auc and .epochs == (.until.epochs | ceil) and
    (.train_logloss | length) == .epochs and .until.training_s < .wall_s'
tap_is "TCP ends at the same step with the same losses" \
    "$(jq -c '[.until.checks[] | .step, (.test_logloss * 1e6 | round)]' "$tap_tmp/target_tcp.json")" \
    "$(jq -c '[.until.checks[] | .step, (.test_logloss * 1e6 | round)]' "$tap_tmp/target.json")"
holds "every step of every worker is in the step times" target '.step_ms.count == 4 * .until.steps and
    .step_ms.p50 > 0 and .step_ms.p99 >= .step_ms.p50 and .step_ms.max >= .step_ms.p99'
holds "ASP with injected loss ends at an AUC target" target_asp '.until | .reached and .auc == 0.915 and
    .checks[-1].test_auc >= 0.915 and (.checks[:-1] | all(.test_auc < 0.915))'
train never --until-auc 0.99 --epochs 2 --check-steps 1000
holds "without reaching the target it ends after the epochs" never '(.until.reached | not) and .epochs == 2 and
    [.until.checks[].step] == [24, 48] and .epoch_test_auc == [.until.checks[].test_auc]'
train none --epochs 1
holds "without a target there are step times and no checks" none '.until == null and .lab == null and .step_ms.count == 4 * 24'
tap_run_fails "weft worker rejects --until-loss" 2 "$WEFT_BIN" worker --servers 127.0.0.1:9 --until-loss 0.3
tap_run_fails "an AUC target of 1 is rejected" 2 "$WEFT_BIN" train --until-auc 1
tap_run_fails "--timeout-s without a target is rejected" 2 "$WEFT_BIN" train --timeout-s 3

# ---- a comparison -------------------------------------------------------------------------------
# With bound 0 all transports make the same steps, so they end at the same loss.
compare() {
    tap_run "$1" "$WEFT_BIN" perf compare --train --loopback --workers 2 --epochs 2 --check-steps 8 \
        --repetitions 2 --timeout-s 0 --transports weft:0,tcp:cubic:none,tcp:0.1:reno:rto5 \
        --out "$tap_tmp/results" --json -- --format adult --batch 512
    cp "$tap_tmp/run.out" "$tap_tmp/compare.json"
}
compare "weft perf compare --train succeeds"
holds "the target is the reference run's loss plus 0.5 %" compare '
    .reference_loss as $r | $r > 0.2 and $r < 0.4 and (.until_loss - 1.005 * $r | fabs) < 1e-5 and
    (.job | endswith("--format adult --batch 512"))'
holds "all transports take the same steps to the same loss" compare '.until_loss as $target | .networks[0] |
    [.cells[].name] == ["weft:0", "tcp:cubic:none", "tcp:0.1:reno:rto5"] and
    all(.cells[]; .repetitions == 2 and .dnf == 0 and (.runs | length) == 2 and
        .test_logloss <= $target + 1e-6 and .delivered_fraction == 1) and
    ([.cells[].steps] | unique | length) == 1 and ([.cells[].test_logloss | . * 1e6 | round] | unique | length) == 1'
holds "the statistics are those of the runs" compare '.networks[0] | (.best_tcp | startswith("tcp")) and
    all(.cells[]; ([.runs[].until.training_s] | sort) as $t |
        (.training_s | .min == $t[0] and .max == $t[1] and .p90 == $t[1] and
            (.median - ($t | add / 2) | fabs) < 1e-12) and
        (.step_ms.p99 - ([.runs[].step_ms.p99] | add / 2) | fabs) < 1e-9) and
    (([.cells[1:][].training_s.median] | min) as $best |
        all(.cells[]; (.ratio_to_best_tcp - .training_s.median / $best | fabs) < 1e-9))'
holds "every run has its transport and security" compare '[.networks[0].cells[].runs[0] | .transport, .security] ==
    ["weft", "auth", "tcp", "none", "tcp", "auth"]'
rm "$tap_tmp"/results/train-2x1-loopback/weft_0.2.json
touch -d '2001-01-01' "$tap_tmp"/results/*.json "$tap_tmp"/results/*/*.json
compare "weft perf compare --train succeeds again"
tap_is "only the missing run is repeated, not the reference" \
    "$(find "$tap_tmp/results" \( -name '*.[123].json' -o -name 'ref*' \) -newermt 2002-01-01 | wc -l)" 1
tap_run_fails "results of another job in the directory: exit status 1" 1 "$WEFT_BIN" perf compare --train --loopback \
    --workers 3 --out "$tap_tmp/results" -- --format adult
tap_like "the error names the other job" "$(cat "$tap_tmp/run.out")" 'results of another job: --workers 2'
tap_run "compare succeeds with a target that is not reached" "$WEFT_BIN" perf compare --train --loopback --workers 2 \
    --epochs 1 --until-loss 0.1 --repetitions 1 --transports weft:0.1 -- --format adult --batch 2000
tap_like "the run is DNF" "$(cat "$tap_tmp/run.out")" '^weft:0.1  *DNF (1 of 1)$'
tap_run "compare --busy 1 succeeds" "$WEFT_BIN" perf compare --train --loopback --workers 2 \
    --epochs 1 --until-loss 0.6 --repetitions 1 --busy 1 --transports weft:0,tcp:cubic:none \
    --out "$tap_tmp/busy" -- --format adult --batch 2000
tap_like "the table names the busy process" "$(cat "$tap_tmp/run.out")" '^loopback, 1 busy process: '
cp "$tap_tmp/busy/compare.json" "$tap_tmp/busy.json"
holds "the report and each run have busy 1" busy '.networks[0] | .name == "train-2x1-loopback-busy1" and
    .busy == 1 and [.cells[].runs[].busy] == [1, 1]'
tap_run_fails "a failing reference run: exit status 1" 1 "$WEFT_BIN" perf compare --train --loopback -- --data no-such-file
tap_like "the error names its cause" "$(cat "$tap_tmp/run.out")" 'the reference run failed: .*no-such-file'
if command -v gnuplot >/dev/null; then
    tap_run "--plot succeeds" "$WEFT_BIN" perf compare --train --loopback --workers 2 --epochs 2 --check-steps 8 \
        --repetitions 2 --transports weft:0,tcp:cubic:none --out "$tap_tmp/results" \
        --plot "$tap_tmp/plots" -- --format adult --batch 512
    tap_is "it writes two pictures for each network" "$(find "$tap_tmp/plots" -name '*.png' -size +2k | wc -l)" 2
else
    tap_skip "--plot succeeds" "gnuplot is not installed"
fi

# refuses <expected message> <arguments...>
refuses() {
    like=$1
    shift
    tap_run_fails "rejects $*" 2 "$WEFT_BIN" perf compare --train "$@"
    tap_like "the error says: $like" "$(cat "$tap_tmp/run.out")" "$like"
}
refuses 'a job can use' --transports weft:0,udp-raw
refuses 'a job can use' --transports weft:delay
refuses 'not a fraction' --loss 0,much
refuses 'belongs before --' -- --workers 3
refuses 'belongs before --' -- --transport=tcp
refuses 'mutually exclusive' --loopback --lab demo
refuses 'unknown option --rounds' --rounds 3
tap_run_fails "a lab that does not exist: exit status 1" 1 "$WEFT_BIN" perf compare --train --lab no-such-lab \
    --until-loss 0.3 --repetitions 1
tap_like "at most two lines of output name the lab" "$(grep -c 'no-such-lab' "$tap_tmp/run.out")" '^[12]$'
tap_done
