#!/bin/sh
# Checkpoints that are written during training, read with numpy, resumed with a different
# number of servers, after kill -9, with a full disk, or damaged.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
data=$WEFT_SOURCE_ROOT/data/adult/adult.data.zst
dir=$tap_tmp/ckpt

train() {
    "$WEFT_BIN" train --data "$data" --loss-bound 0 --workers 2 "$@"
}

# auc <log>: the last AUC in the log.
auc() {
    sed -n 's/^  test AUC *//p' "$1"
}

python=
for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import numpy' 2>/dev/null; then
        python=$candidate
        break
    fi
done
reader=$WEFT_SOURCE_ROOT/tests/cli/checkpoint_read.py

# ---- an uninterrupted run, and one that is resumed with another number of servers ----
tap_run "an uninterrupted run succeeds" train --epochs 3 --servers 1 --checkpoint "$tap_tmp/whole"
cp "$tap_tmp/run.out" "$tap_tmp/whole.log"
tap_run "two epochs with deltas succeed" train --epochs 2 --servers 2 --checkpoint "$dir" \
    --checkpoint-every 20 --checkpoint-full-every 3 --checkpoint-keep 3
tap_like "it prints each checkpoint" "$(cat "$tap_tmp/run.out")" \
    '^server 1: checkpoint [0-9]*: clock [0-9]*, [0-9]* rows that changed, [0-9]* bytes'
tap_like "it prints the last checkpoint" "$(cat "$tap_tmp/run.out")" '^server 0: checkpoint 96: clock 96'
tap_is "both manifests have the clock of the order" "$(for record in "$dir"/log/0*; do
    jq -r 'select(.number == 96 and .files) | .clock' "$record"
done | tr '\n' ' ')" "96 96 "
# Expected on a fast enough machine: 20 is full, 40 and 60 are deltas of it, 80 is full, 96 is a
# delta of it; 96, 80, 60 and the parts that 60 is based on are kept. On a slow machine some of them are
# not written, so the number of files varies.
kept=$(find "$dir" -maxdepth 1 -name '*-0000-*.safetensors' | wc -l)
tap_is "from 2 to 6 files of shard 0 are kept ($kept)" "$((kept >= 2 && kept <= 6))" 1
tap_run_fails "a new run into the directory fails" 1 train --epochs 3 --checkpoint "$dir"
tap_like "the error says that it contains checkpoints" "$(cat "$tap_tmp/run.out")" 'holds checkpoints: restore from them'
tap_run "--resume continues on three shards of one server" train --epochs 3 --servers 1 \
    --shards-per-server 3 --checkpoint "$dir" --resume --report "$tap_tmp/report.json"
cp "$tap_tmp/run.out" "$tap_tmp/rest.log"
tap_like "it restores the last checkpoint" "$(cat "$tap_tmp/rest.log")" 'restored from checkpoint 96'
tap_is "it runs the third epoch only" "$(grep -c '^epoch [12]/' "$tap_tmp/rest.log")" 0
tap_is "its AUC is that of the uninterrupted run" "$(auc "$tap_tmp/rest.log")" "$(auc "$tap_tmp/whole.log")"
tap_run "its report has no losses of the first two epochs" jq -e \
    '.train_logloss[0] == null and .train_logloss[2] > 0 and .test_auc > 0.9' "$tap_tmp/report.json"
tap_run_fails "--resume after the last epoch fails" 1 train --epochs 3 --checkpoint "$dir" --resume
tap_like "the error says so" "$(cat "$tap_tmp/run.out")" 'already finished all --epochs'

# ---- read by numpy ----
if [ -n "$python" ]; then
    tap_run "numpy reads the newest checkpoint" "$python" "$reader" "$dir"
    tap_is "it has the last clock and all rows" "$(jq -r '"\(.clock) \(.rows)"' "$tap_tmp/run.out")" "144 7453"
    tap_run "it has the same rows as the checkpoint of the uninterrupted run" "$python" "$reader" "$dir" --compare \
        "$tap_tmp/whole"
else
    tap_skip "numpy reads the newest checkpoint" "no numpy"
    tap_skip "it has the last clock and all rows" "no numpy"
    tap_skip "it has the same rows as the checkpoint of the uninterrupted run" "no numpy"
fi

# ---- kill -9 of all servers, at any time ----
# The newest checkpoint of which both servers have reported their part: it must not be lost.
reported() {
    sed -n 's/^server [0-9]*: checkpoint \([0-9]*\):.*/\1/p' "$tap_tmp/log" | sort -n | uniq -d |
        tail -n 1 | grep .
}
rm -rf "$dir"
: >"$tap_tmp/log"
"$WEFT_BIN" train --data "$data" --loss-bound 0 --workers 2 --epochs 10000 --servers 2 \
    --checkpoint "$dir" --checkpoint-every 10 --checkpoint-full-every 4 >"$tap_tmp/log" 2>&1 &
train=$!
tap_until grep -q '^epoch 3/' "$tap_tmp/log" || tap_fail "the training starts" "$(cat "$tap_tmp/log")"
tap_until reported || tap_fail "both servers report a checkpoint" "$(cat "$tap_tmp/log")"
for pid in $(sed -n 's/^server [0-9]*: pid //p' "$tap_tmp/log"); do
    kill -9 "$pid"
done
wait "$train" || true
reported=$(reported)
# On a busy machine the kill is late: more epochs, of 48 clocks, than the newest checkpoint has.
newest=$(find "$dir" -maxdepth 1 -name '*.safetensors' | sed 's,.*/0*,,; s/-.*//' | sort -n | tail -n 1)
epochs=$((newest / 48 + 2))
tap_run "--resume succeeds on one server after kill -9 of two" train --epochs "$epochs" --servers 1 --checkpoint "$dir" --resume
restored=$(sed -n 's/.*restored from checkpoint \([0-9]*\)$/\1/p' "$tap_tmp/run.out")
tap_is "the restored checkpoint is not older than the newest reported one" "$((restored >= reported && reported >= 10))" 1
tap_is "the AUC is that of a run without a kill" \
    "$(train --epochs "$epochs" --servers 1 2>&1 | sed -n 's/^  test AUC *//p')" "$(auc "$tap_tmp/run.out")"

# ---- a server alone: usage errors, SIGUSR1, SIGTERM ----
server() {
    "$WEFT_BIN" server --security none --port 0 "$@"
}
tap_run_fails "--restore without --checkpoint: usage error" 2 server --restore
tap_run_fails "an invalid --checkpoint-every fails" 1 server --checkpoint "$tap_tmp/x" --checkpoint-every 5m
tap_like "the error names the formats" "$(cat "$tap_tmp/run.out")" 'a number of clocks, or of seconds'
tap_run_fails "--checkpoint-every in seconds fails at a server with a part of the shards" 1 server --shards 2 --checkpoint "$tap_tmp/x" \
    --checkpoint-every 5s
tap_run_fails "--restore fails if there is no checkpoint" 1 server --checkpoint "$tap_tmp/x" --restore
tap_like "the error says so" "$(cat "$tap_tmp/run.out")" 'holds no checkpoint to restore from'
tap_run_fails "a checkpoint directory that cannot be created: exit status 1" 1 server --checkpoint /dev/null/x
: >"$tap_tmp/log"
: >"$tap_tmp/port"
"$WEFT_BIN" server --security none --port 0 --checkpoint "$tap_tmp/asked" >"$tap_tmp/port" 2>"$tap_tmp/log" &
server=$!
tap_until grep -q '^shard 0' "$tap_tmp/port"
port=$(sed -n 's/.*:\([0-9]*\)$/\1/p' "$tap_tmp/port")
"$WEFT_BIN" worker --security none --servers "127.0.0.1:$port" --data "$data" --workers 1 \
    --epochs 10000 >"$tap_tmp/worker" 2>&1 &
worker=$!
tap_until grep -q '"epoch"' "$tap_tmp/worker"
kill -USR1 "$server"
tap_run "SIGUSR1 starts a checkpoint" tap_until grep -q 'checkpoint [0-9]*: clock' "$tap_tmp/log"
kill -USR1 "$server"
kill -TERM "$server"
status=0
wait "$server" || status=$?
kill -9 "$worker" 2>/dev/null
wait "$worker" 2>/dev/null || true
tap_is "SIGTERM directly after SIGUSR1: exit status 0" "$status" 0
tap_is "no temporary file is left" "$(find "$tap_tmp/asked" -name '*.tmp')" ""
tap_run "a server restores the checkpoint" sh -c \
    "'$WEFT_BIN' server --security none --port 0 --checkpoint '$tap_tmp/asked' --restore >'$tap_tmp/up' 2>&1 &
     pid=\$!; until grep -q '^shard 0' '$tap_tmp/up' || ! kill -0 \$pid; do sleep 0.05; done
     kill \$pid; wait \$pid && grep -q 'restored from' '$tap_tmp/up'"

# ---- Ctrl-C in weft train ----
# The server hangs at SIGTERM, in the write of its trace to a full pipe. It might be writing a checkpoint, so
# it is not killed soon; a second signal ends the wait.
mkfifo "$tap_tmp/stuck.server-0"
exec 9<>"$tap_tmp/stuck.server-0"
dd if=/dev/zero bs=64940 count=1 >&9 2>/dev/null
"$WEFT_BIN" train --data "$data" --workers 1 --servers 1 --mode asp --epochs 10000 --checkpoint "$tap_tmp/hangs" \
    --trace "$tap_tmp/stuck" >"$tap_tmp/log" 2>&1 &
train=$!
tap_until grep -q '^worker 0: pid' "$tap_tmp/log"
interrupted() { # the second signal must not be merged with the first one
    kill -INT "$train" 2>/dev/null
    sleep 0.6
    grep -q 'signal 2 (Interrupt) again; killing the servers' "$tap_tmp/log"
}
tap_run "a second Ctrl-C ends the wait for the servers of weft train" tap_until interrupted
status=0
wait "$train" || status=$?
tap_is "weft train exits with 1" "$status" 1
exec 9>&-
: >"$tap_tmp/log"
"$WEFT_BIN" train --data "$data" --workers 2 --servers 1 --mode asp --epochs 10000 --checkpoint "$tap_tmp/failed" \
    >"$tap_tmp/log" 2>&1 &
train=$!
tap_until grep -q '^epoch 1/' "$tap_tmp/log"
kill -9 "$(sed -n 's/^worker 1: pid //p' "$tap_tmp/log")"
wait "$train" || true
tap_like "after the failure of a worker the server writes and reports its last checkpoint" "$(cat "$tap_tmp/log")" \
    '^server 0: checkpoint [0-9]*: '
# ---- two servers that write into different directories: no checkpoint becomes valid ----
apart() {
    : >"$tap_tmp/apart.$1"
    "$WEFT_BIN" server --security none --port 0 --shards 2 --shard-base "$1" --checkpoint "$tap_tmp/apart$1" \
        --checkpoint-every 2 >"$tap_tmp/apart.$1" 2>&1 &
    server=$!
    tap_until grep -q "^shard $1" "$tap_tmp/apart.$1"
    port=$(sed -n "s/^shard $1 .*:\([0-9]*\)\$/\1/p" "$tap_tmp/apart.$1")
}
apart 0
first=$server
list=127.0.0.1:$port
apart 1
"$WEFT_BIN" worker --security none --servers "$list,127.0.0.1:$port" --data "$data" --workers 1 \
    --epochs 10000 >"$tap_tmp/worker" 2>&1 &
worker=$!
tap_run "a server warns that parts of other servers are missing" tap_until grep -q \
    'the last 3 checkpoints of this server are not valid, .* the newest valid one is 0' "$tap_tmp/apart.0"
kill -9 "$worker" "$first" "$server"
wait "$worker" "$first" "$server" 2>/dev/null || true

# ---- damaged ----
newest=$(find "$dir" -maxdepth 1 -name '*.safetensors' | sort | tail -n 1)
printf 'X' | dd of="$newest" bs=1 seek=9000 conv=notrunc 2>/dev/null
tap_run "--resume succeeds although the newest checkpoint is damaged" train --epochs $((epochs + 1)) --servers 1 --checkpoint "$dir" --resume
tap_like "the damaged file is reported" "$(cat "$tap_tmp/run.out")" \
    'checkpoint [0-9]* cannot be used: .*-0000-[0-9]*.safetensors: .* is damaged'
tap_like "the damaged file is in quarantine" "$(find "$dir/quarantine" -name '*.safetensors')" \
    '/quarantine/[0-9]*-0000-[0-9]*.safetensors'

# ---- a full disk, emulated by a limit on the size of files ----
(
    ulimit -f 60 # blocks of 512 bytes: smaller than a checkpoint
    trap '' XFSZ
    exec "$WEFT_BIN" train --data "$data" --workers 2 --servers 1 --epochs 2 --checkpoint \
        "$tap_tmp/full" --checkpoint-every 20
) >"$tap_tmp/log" 2>&1
tap_is "a full disk does not end training" "$?" 0
tap_like "a full disk is reported" "$(cat "$tap_tmp/log")" \
    'checkpoint [0-9]* abandoned: cannot write .*: File too large'
tap_is "a full disk: no temporary file is left" "$(find "$tap_tmp/full" -name '*.tmp')" ""
tap_done
