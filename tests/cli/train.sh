#!/bin/sh
# `weft train` on the shipped data: every key of the report, every mode, loss, bound and optimizer.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR

# train <name> <options...>: the report is $tap_tmp/<name>.json.
train() {
    name=$1
    shift
    tap_run "train $*" "$WEFT_BIN" train --data "$WEFT_SOURCE_ROOT/data/adult/adult.data.zst" \
        --format adult --workers 4 --servers 2 "$@" --report "$tap_tmp/$name.json"
    cp "$tap_tmp/run.out" "$tap_tmp/$name.log"
}

# holds <what> <name> <jq condition>
holds() {
    if jq -e "$3" "$tap_tmp/$2.json" >"$tap_tmp/jq.out" 2>&1; then
        tap_pass "$2: $1"
    else
        tap_fail "$2: $1" "$3
$(jq -c 'del(.counters, .latency_us)' "$tap_tmp/$2.json" 2>&1)"
    fi
}

# ---- every mode under loss, compared with the reliable run ----
train reliable --mode bsp --loss-bound 0 --inject-loss 0
train bsp --mode bsp --loss-bound 0.10 --inject-loss 0.02
train ssp --mode ssp:2 --loss-bound 0.10 --inject-loss 0.02
train asp --mode asp --loss-bound 0.10 --inject-loss 0.02
train whole --mode bsp --loss-bound 0 --inject-loss 0.02
# Larger batches, so that a message has many chunks and its bound allows some losses.
train large --mode bsp --loss-bound 0.10 --inject-loss 0.10 --batch 2048 --epochs 4

best=$(jq .test_auc "$tap_tmp/reliable.json")
holds "nothing is lost" reliable '.injected_drops == 0 and .delivered_fraction == 1'
holds "AUC at least 0.90" reliable '.test_auc >= 0.90'
for name in bsp ssp asp whole; do
    near=0.003
    # ASP does not synchronize workers: one that was suspended trains its share alone.
    [ "$name" = asp ] && near=0.02
    holds "AUC at least 0.90 and within $near of the reliable run" "$name" \
        ".test_auc >= 0.90 and (.test_auc - $best | fabs) <= $near"
    holds "drops within 5 sigma of the rate" "$name" '.injected_loss as $p | .datagrams_received as $n |
        $n > 1000 and (.injected_drops - $n * $p | fabs) <= 5 * ($n * $p * (1 - $p) | sqrt)'
    holds "no message misses more than its bound" "$name" '.messages > 0 and .messages_short == 0'
    holds "lost packets are retransmitted" "$name" '.retransmitted_packets > 0'
done
for name in bsp ssp asp large; do
    holds "delivered between 0.90 and 1" "$name" \
        '.delivered_fraction >= 0.90 and .delivered_fraction <= 1'
done
holds "bound 0 delivers everything" whole '.delivered_fraction == 1 and .counters.chunks_missing == 0'
holds "with a bound some chunks are missing" large '.delivered_fraction < 1 and .counters.chunks_missing > 0'
holds "with a bound the AUC is at least 0.90" large '.test_auc >= 0.90 and .messages_short == 0'
holds "the report has mode, bound and injected loss" ssp '.mode == "ssp:2" and .loss_bound == 0.1 and .injected_loss == 0.02'

# ---- the report ----
holds "the report has every documented key" bsp '
    .model == "lr" and .dataset == "adult.data" and .rows_train == 24139 and .rows_test == 6023 and
    .features == 7696 and .workers == 4 and .servers == 2 and .mode == "bsp" and
    .loss_bound == 0.1 and .injected_loss == 0.02 and .epochs == 3 and
    (.train_logloss | length == 3 and all(. > 0 and . < 1) and .[2] < .[0]) and
    (.test_logloss > 0 and .test_logloss < 0.4) and
    (.wall_s > 0) and (.samples_per_s > 0) and
    (.samples_per_s * .wall_s / (.rows_train * .epochs) - 1 | fabs < 1e-6) and
    ([.datagrams_received, .injected_drops, .messages, .messages_short, .retransmitted_packets] |
        all(type == "number" and . >= 0 and . == floor))'
holds "the report has all latencies, none negative" bsp '
    [.latency_us | .push, .pull | .W_proc, .W_queue, .PS_proc, .PS_queue, .N_tx, .PS_wait |
        (.p50 >= 0 and .p99 >= .p50)] | length == 12 and all'
holds "N_tx is positive" bsp '.latency_us | .push.N_tx.p50 > 0 and .pull.N_tx.p50 > 0'
holds "BSP: pulls wait for clocks" bsp '.latency_us.pull.PS_wait.p99 > 0'
# Workers x steps x epochs; each clock reaches both shards.
holds "every step ends one clock" bsp \
    '.counters.client_clocks == .counters.shard_clocks and .counters.shard_clocks == 4 * (.rows_train / 4 / .batch | ceil) * 3 * 2'
tap_is "no temporary file is left" "$(find "$tap_tmp" -name '*.new.*')" ""
tap_is "the output has a line for each epoch" "$(grep -c '^epoch [1-3]/3 .*loss .*AUC .*samples/s .*delivered' \
    "$tap_tmp/bsp.log")" 3
tap_like "the output has a table of latencies" "$(cat "$tap_tmp/bsp.log")" 'push p50 *push p99 *pull p50 *pull p99'

# ---- pipes, devices and links are not replaced by files ----
mkfifo "$tap_tmp/pipe" "$tap_tmp/other"
cat "$tap_tmp/pipe" >"$tap_tmp/piped.json" &
tap_at_exit "kill $! 2>/dev/null || true; wait"
tap_run "the report can be written to a pipe" "$WEFT_BIN" train --workers 1 --servers 1 --epochs 1 \
    --report "$tap_tmp/pipe"
tap_run "the pipe remains a pipe" test -p "$tap_tmp/pipe"
[ -p "$tap_tmp/pipe" ] && wait $!
holds "the report is complete" piped '.epochs == 1 and .test_auc > 0.85'
tap_run_fails "a report to a pipe without a reader: exit status 1" 1 "$WEFT_BIN" train --workers 1 --servers 1 \
    --epochs 1 --report "$tap_tmp/other"
tap_like "the error names the pipe" "$(cat "$tap_tmp/run.out")" 'cannot write .*other: No such device'
ln -s named.json "$tap_tmp/link.json"
ln -s named.model "$tap_tmp/link.model"
ln -s named.db "$tap_tmp/link.db"
echo '{}' >"$tap_tmp/named.json"
echo >"$tap_tmp/named.model"
echo >"$tap_tmp/named.db"
tap_run "outputs through links succeed" "$WEFT_BIN" train --workers 1 --servers 1 --epochs 1 \
    --report "$tap_tmp/link.json" --save "$tap_tmp/link.model" --records "$tap_tmp/link.db"
holds "the target of the report's link is written" named '.epochs == 1'
for kind in json model db; do
    tap_run "link.$kind remains a link" test -L "$tap_tmp/link.$kind"
    tap_run "its target is written" test "$(wc -c <"$tap_tmp/named.$kind")" -gt 100
done
ln -s /proc/self/fd/1 "$tap_tmp/stdout"
tap_run "the report can be written to standard output" sh -c '"$0" train --workers 1 --servers 1 --epochs 1 \
    --report "$1/stdout" >"$1/stdout.log"' "$WEFT_BIN" "$tap_tmp"
tap_run "its path remains a link" test -L "$tap_tmp/stdout"
tap_like "standard output has the report" "$(cat "$tap_tmp/stdout.log")" '"test_auc":'
tap_like "and the progress" "$(cat "$tap_tmp/stdout.log")" '^epoch 1/1 '

# ---- the job does not wait for the reader of its progress ----
mkfifo "$tap_tmp/unread"
exec 9<>"$tap_tmp/unread"
dd if=/dev/zero of="$tap_tmp/unread" bs=4096 count=1024 oflag=nonblock 2>/dev/null
"$WEFT_BIN" train --workers 1 --servers 1 --epochs 1 --report "$tap_tmp/unread.json" >&9 2>/dev/null 9>&- &
unread=$!
tap_run "a job trains although nobody reads its progress" tap_until test -s "$tap_tmp/unread.json"
cat "$tap_tmp/unread" >"$tap_tmp/unread.log" 9>&- &
reader=$!
tap_until test -s "$tap_tmp/unread.log"
exec 9>&-
wait $unread
tap_is "when it is read, the job ends with 0" $? 0
wait $reader
tap_is "no line is missing" "$(tr -d '\000' <"$tap_tmp/unread.log" | grep -c '^epoch 1/1 \|^report: ')" 2

# ---- a signal ends the wait for that reader, also with a report on standard output ----
exec 9<>"$tap_tmp/unread"
dd if=/dev/zero of="$tap_tmp/unread" bs=4096 count=1024 oflag=nonblock 2>/dev/null
"$WEFT_BIN" train --workers 1 --servers 1 --epochs 1 --json --save "$tap_tmp/waits.model" >"$tap_tmp/waits.json" 2>&9 9>&- &
waits=$!
# Its last child is the watchdog.
tap_until sh -c 'test -s "$0" && test "$(wc -w <"/proc/$1/task/$1/children")" = 1' "$tap_tmp/waits.model" $waits
tap_run "a signal ends the wait for the reader of progress" \
    tap_until sh -c '! kill -TERM $0 || grep -q "^State:.*Z" /proc/$0/status' $waits
wait $waits
tap_is "the exit status is 1" $? 1
exec 9>&-

# ---- progress that cannot be written ----
if [ -w /dev/full ]; then
    "$WEFT_BIN" train --workers 1 --servers 1 --epochs 1 --report "$tap_tmp/full.json" >/dev/full 2>"$tap_tmp/full.err"
    tap_is "progress that cannot be written: exit status 1" $? 1
    tap_is "the error says so" "$(cat "$tap_tmp/full.err")" \
        'weft train: cannot write all output: No space left on device'
    tap_run "the report is written" test -s "$tap_tmp/full.json"
else
    tap_skip "progress that cannot be written: exit status 1" "no /dev/full"
fi

for kind in json model db; do
    ln -s "new.$kind" "$tap_tmp/dangling.$kind"
    ln -s "no/such.$kind" "$tap_tmp/nowhere.$kind"
done
tap_run "links to files that do not exist yet are followed" "$WEFT_BIN" train --workers 1 \
    --servers 1 --epochs 1 --report "$tap_tmp/dangling.json" --save "$tap_tmp/dangling.model" \
    --records "$tap_tmp/dangling.db"
for kind in json model db; do
    tap_run "dangling.$kind remains a link" test -L "$tap_tmp/dangling.$kind"
    tap_run "its target new.$kind is written" test "$(wc -c <"$tap_tmp/new.$kind")" -gt 100
done
for option in report=$tap_tmp/nowhere.json save=$tap_tmp/nowhere.model \
    records=$tap_tmp/nowhere.db; do
    tap_run_fails "a link into a directory that does not exist is rejected: ${option%%=*}" 1 "$WEFT_BIN" train --workers 1 \
        --servers 1 --epochs 1 "--$option"
    tap_like "the error names the file: ${option%%=*}" "$(cat "$tap_tmp/run.out")" 'cannot .*nowhere.*: No such file'
    tap_run "the link remains" test -L "${option#*=}"
done
ln -s unmade.json "$tap_tmp/early.json"
tap_run_fails "a run that is rejected later" 1 "$WEFT_BIN" train --workers 1 --servers 1 --epochs 1 \
    --report "$tap_tmp/early.json" --records "$tap_tmp/other"
tap_run "leaves no empty file at the end of a link" test ! -e "$tap_tmp/unmade.json"
for option in save records; do
    tap_run_fails "--$option does not replace standard output" 1 sh -c '"$0" train --workers 1 \
        --servers 1 --epochs 1 "--$2" "$1/stdout" >"$1/stdout.log"' "$WEFT_BIN" "$tap_tmp" $option
    tap_like "the error says what to do: --$option" "$(cat "$tap_tmp/run.out")" 'this process has it open.*name another'
    tap_run "standard output remains empty" test ! -s "$tap_tmp/stdout.log"
done
for options in "--report x --save x" "--report x --records x" "--save x --records x"; do
    # shellcheck disable=SC2086
    tap_run_fails "one file for two outputs is rejected: $options" 2 "$WEFT_BIN" train --epochs 1 $options
done
ln -s both.model "$tap_tmp/both.json"
for options in "--report both.json --save both.model" "--report both.json --records both.model" \
    "--save ./x --records x" "--report both.json --save ./both.json"; do
    # shellcheck disable=SC2086
    tap_run_fails "also through a link or another path: $options" 2 sh -c 'cd "$0" && exec "$@"' \
        "$tap_tmp" "$WEFT_BIN" train --epochs 1 $options
    tap_like "the error says so" "$(cat "$tap_tmp/run.out")" 'need a file each'
done
for option in save records; do
    tap_run_fails "--$option does not write to a pipe" 1 "$WEFT_BIN" train --workers 1 --servers 1 \
        --epochs 1 --$option "$tap_tmp/other"
    tap_like "the error names the file" "$(cat "$tap_tmp/run.out")" 'other: it is not a regular file; name another'
    tap_run "the pipe remains a pipe" test -p "$tap_tmp/other"
    tap_like "standard output that is a pipe gets the same error" \
        "$("$WEFT_BIN" train --epochs 1 --$option /proc/self/fd/1 2>&1)" 'it is not a regular file; name another'
done

# ---- --json, other optimizers and drivers ----
tap_run "train --json succeeds" sh -c '"$WEFT_BIN" train --json --epochs 1 --workers 2 --servers 1 \
    --shards-per-server 3 --optimizer sgd --report "$0/json.json" >"$0/json.out" 2>"$0/json.err"' \
    "$tap_tmp"
tap_run "standard output has the report only" cmp "$tap_tmp/json.out" "$tap_tmp/json.json"
tap_like "progress is on standard error" "$(cat "$tap_tmp/json.err")" '^epoch 1/1 '
holds "SGD reaches an AUC of 0.89" json '.optimizer == "sgd" and .test_auc > 0.89 and .shards_per_server == 3'
holds "the mean is over workers by default" json '.average == "workers"'
train contributors --average contributors --epochs 1 --loss-bound 0.35 --inject-loss 0.3
holds "a mean over contributors reaches an AUC of 0.915" contributors '.average == "contributors" and
    .test_auc > 0.915 and .delivered_fraction < 1'
train half --value-type bf16 --pull-value-type bf16 --epochs 1 --loss-bound 0
holds "bf16 halves the bytes of values, with an AUC of at least 0.90" half '.value_type == "bf16" and
    .pull_value_type == "bf16" and .test_auc >= 0.90 and .counters.client_value_bytes_saved ==
    2 * (.counters.push_elements_delivered + .counters.pull_elements_delivered) and
    .counters.client_residual_dropped == 0'
train quarter --value-type int8 --epochs 1 --loss-bound 0
holds "int8 saves 2.9 to 3 bytes per value, with an AUC of at least 0.90" quarter '.value_type == "int8" and
    .pull_value_type == "float32" and .test_auc >= 0.90 and .counters.client_residual_dropped == 0 and
    .counters.client_value_bytes_saved > 2.9 * .counters.push_elements_delivered and
    .counters.client_value_bytes_saved < 3 * .counters.push_elements_delivered'
train engine --progress-thread engine --epochs 1 --loss-bound 0 --inject-loss 0.02
holds "with a progress thread the AUC is at least 0.90" engine '.test_auc >= 0.90 and .delivered_fraction == 1'

# ---- libsvm: one feature determines the label ----
awk 'BEGIN { for (i = 0; i < 600; i++) printf "%+d %d:1 %d:0.5\n", i % 2 ? 1 : -1, i % 2 + 1, 10 + i }' \
    >"$tap_tmp/toy.libsvm"
gzip -c "$tap_tmp/toy.libsvm" >"$tap_tmp/toy.libsvm.gz"
for file in toy.libsvm toy.libsvm.gz; do
    tap_run "train on $file" env WEFT_DATA_DIR="$tap_tmp" "$WEFT_BIN" train --format libsvm \
        --data "$file" --workers 3 --servers 2 --epochs 2 --batch 10 --report "$tap_tmp/toy.json"
    holds "the AUC is 1" toy '.test_auc == 1 and .dataset == "toy.libsvm" and
        .rows_train + .rows_test == 600'
done
tap_done
