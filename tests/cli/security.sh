#!/bin/sh
# Security modes: training works in every mode, the key does not leak, and if
# the two ends differ in key or mode, both print an error and exit with status 1.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR WEFT_JOB_KEY

awk 'BEGIN { for (i = 0; i < 2000; i++) printf "%d,Private,%d,9th,5,Divorced,Sales,Wife,White,Male," \
    "0,0,40,United-States,%s50K\n", 17 + i % 70, i, i % 3 ? "<=" : ">" }' >"$tap_tmp/rows.csv"
"$WEFT_BIN" keygen "$tap_tmp/a.key" >"$tap_tmp/keygen"
"$WEFT_BIN" keygen "$tap_tmp/b.key" >"$tap_tmp/keygen"
key=$(cat "$tap_tmp/a.key")
print_a=$("$WEFT_BIN" keygen --check --json "$tap_tmp/a.key" | jq -r .fingerprint)
print_b=$("$WEFT_BIN" keygen --check --json "$tap_tmp/b.key" | jq -r .fingerprint)

# ---- one machine ----
train() { # train <name> <options...>: the report is $tap_tmp/<name>.json
    name=$1
    shift
    tap_run "train $*" "$WEFT_BIN" train --data "$tap_tmp/rows.csv" --epochs 2 --workers 2 \
        --report "$tap_tmp/$name.json" "$@"
}
train auth
train seal --security seal --loss-bound 0 --inject-loss 0.02
train engine --security seal --progress-thread engine --key-file "$tap_tmp/a.key"
train none --security none
for mode in auth seal none; do
    tap_is "the report names mode $mode" "$(jq -r .security "$tap_tmp/$mode.json")" "$mode"
    tap_run "mode $mode: no packet is rejected, and no encryption fails" jq -e \
        '.counters | .bad_tag + .bad_key + .bad_mode + .crypto_failures == 0' "$tap_tmp/$mode.json"
done
tap_is "mode seal with injected loss: everything is delivered" "$(jq .delivered_fraction "$tap_tmp/seal.json")" 1
tap_run_fails "train rejects a file that is not a key" 1 "$WEFT_BIN" train --key-file "$tap_tmp/rows.csv"
tap_run_fails "train rejects an invalid WEFT_JOB_KEY" 1 env WEFT_JOB_KEY=123 "$WEFT_BIN" train
tap_like "the error names it" "$(cat "$tap_tmp/run.out")" 'WEFT_JOB_KEY is cut short: 3 '

# ---- no key ----
for verb in "server --port 0" "worker --servers 127.0.0.1:9"; do
    # shellcheck disable=SC2086
    tap_run_fails "without a key $verb fails" 1 "$WEFT_BIN" $verb
    tap_like "the error names weft keygen and --key-file" "$(cat "$tap_tmp/run.out")" 'no job key: .*weft keygen job.key.*--key-file'
done

# ---- the key does not leak ----
: >"$tap_tmp/log"
env WEFT_JOB_KEY="$key" "$WEFT_BIN" train --data "$tap_tmp/rows.csv" --epochs 10000 --workers 2 \
    >"$tap_tmp/log" 2>&1 &
train=$!
tap_until grep -q '^epoch 1/' "$tap_tmp/log"
pids="$train $(sed -n 's/^[a-z]* [0-9]*: pid //p' "$tap_tmp/log")"
seen=
count=0
for pid in $pids; do
    for file in environ cmdline; do
        [ -r "/proc/$pid/$file" ] && count=$((count + 1))
        tr '\0' '\n' <"/proc/$pid/$file" | grep -q "$key" && seen="$seen $pid/$file"
    done
done
tap_is "every process was examined" "$count" 10
tap_is "no process has the key in its environment or command line" "$seen" ""
tap_is "the key is not in the output" "$(grep -c "$key" "$tap_tmp/log")" 0
kill "$train"
wait "$train"

# ---- a server and a worker with different options ----
# attempt <number> <server's options> <worker's options>: run a server and a worker; save
# their output and exit statuses
attempt() {
    out=$tap_tmp/ends.$1
    # Truncate the files now: the background shell does so only once it is scheduled.
    : >"$out.server"
    : >"$out.server.err"
    # shellcheck disable=SC2086
    "$WEFT_BIN" server --port 0 --workers 1 $2 >"$out.server" 2>"$out.server.err" &
    server=$!
    tap_until grep -q '^shard 0 of 1: ' "$out.server"
    port=$(sed -n 's/^shard 0 of 1: .*://p' "$out.server")
    # shellcheck disable=SC2086
    "$WEFT_BIN" worker --data "$tap_tmp/rows.csv" --epochs 1 --servers "127.0.0.1:$port" $3 \
        >"$out.worker" 2>"$out.worker.err"
    worker_status=$?
    kill "$server"
    server_status=0
    wait "$server" || server_status=$?
    echo "$worker_status $server_status" >"$out.statuses"
}
# ends <number> <name> <pattern at the worker> <pattern at the server>: check a finished attempt.
# An empty pattern: exit status 0 and no error.
ends() {
    out=$tap_tmp/ends.$1
    tap_is "$2: the exit statuses of worker and server" "$(cat "$out.statuses")" \
        "$([ -z "$3" ]; echo $?) $([ -z "$4" ]; echo $?)"
    tap_like "$2: the worker prints the expected error" "$(cat "$out.worker.err")" "${3:-^$}"
    tap_like "$2: the server prints the expected error" "$(cat "$out.server.err")" "${4:-^$}"
}
a="--key-file $tap_tmp/a.key"
b="--key-file $tap_tmp/b.key"
# Run all attempts concurrently: a rejected worker fails only when its peer timeout expires.
attempt 1 "$a" "$a" &
attempt 2 "$a" "$a --security seal" &
attempt 3 "$a" "$b --peer-timeout 5" &
attempt 4 "$a" "$b --progress-thread engine --peer-timeout 5" &
attempt 5 "$a --security seal" "$a --peer-timeout 5" &
attempt 6 "$a" "--security none --peer-timeout 5" &
attempt 7 "--security none" "$a --peer-timeout 5" &
wait
ends 1 "the same key" '' ''
ends 2 "seal at the worker, auth at the server" '' ''
ends 3 "another key" "reports another job key.*this end's is $print_b" \
    "every connection was rejected: a peer with another job key.*this end's is $print_a"
ends 4 "another key, with a progress thread" "reports another job key.*this end's is $print_b" "another job key"
ends 5 "auth at the worker, seal at the server" 'does not accept this security mode' 'another security mode'
ends 6 "none at the worker" 'does not accept this security mode' 'another security mode'
ends 7 "none at the server" 'does not accept this security mode' 'another security mode'

tap_done
