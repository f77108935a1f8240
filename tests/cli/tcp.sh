#!/bin/sh
# --transport tcp: training over the kernel's TCP reaches the same quality as over weft's UDP;
# failures are reported.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
data=$WEFT_SOURCE_ROOT/data/adult/adult.data.zst

# train <name> <options...>: the report is $tap_tmp/<name>.json.
train() {
    name=$1
    shift
    tap_run "train $*" "$WEFT_BIN" train --data "$data" "$@" --report "$tap_tmp/$name.json"
}

# holds <what> <name> <jq condition>
holds() {
    if jq -e "$3" "$tap_tmp/$2.json" >"$tap_tmp/jq.out" 2>&1; then
        tap_pass "$2: $1"
    else
        tap_fail "$2: $1" "$3
$(jq -c 'del(.latency_us)' "$tap_tmp/$2.json" 2>&1)"
    fi
}

# ---- the same quality as over UDP ----
train udp --workers 4 --servers 2 --loss-bound 0
train tcp --workers 4 --servers 2 --transport tcp
train seal --workers 8 --servers 2 --transport tcp --security seal
train none --workers 2 --servers 1 --shards-per-server 2 --transport tcp --security none \
    --mode ssp:2 --progress-thread engine
best=$(jq .test_auc "$tap_tmp/udp.json")
holds "the report names the transport" udp '.transport == "weft"'
for name in tcp seal none; do
    holds "the report names the transport" "$name" '.transport == "tcp"'
    holds "the AUC is within 0.003 of that over UDP" "$name" ".test_auc >= 0.90 and (.test_auc - $best | fabs) <= 0.003"
    holds "everything is delivered" "$name" \
        '.delivered_fraction == 1 and .messages_short == 0 and .counters.chunks_missing == 0'
    holds "no error is counted" "$name" '.counters | .bad_tag == 0 and .bad_packet == 0 and
        .bad_range == 0 and .messages_unknown == 0 and .messages_sent > 0'
done
# BSP with bound 0 computes the same results over any transport.
holds "the AUC is that of UDP, to 1e-9" tcp "(.test_auc - $best | fabs) < 1e-9"
tap_run "train --tcp-cc reno succeeds" "$WEFT_BIN" train --data "$data" --epochs 1 --workers 2 --transport tcp \
    --tcp-cc reno
# The kernel's DCTCP, or weft's if root may load it; train passes the kernel's name of it to its
# children.
"$WEFT_BIN" train --data "$data" --epochs 1 --workers 2 --transport tcp --tcp-cc dctcp \
    >"$tap_tmp/out" 2>"$tap_tmp/err"
case $?:$(head -n 1 "$tap_tmp/err") in
0:*)
    tap_pass "train --tcp-cc dctcp succeeds"
    "$WEFT_BIN" keygen "$tap_tmp/dctcp.key" >/dev/null
    "$WEFT_BIN" server --transport tcp --tcp-cc dctcp --port 0 --key-file "$tap_tmp/dctcp.key" \
        >"$tap_tmp/dctcp.out" 2>"$tap_tmp/dctcp.err" &
    server=$!
    tap_until grep -q '^shard 0' "$tap_tmp/dctcp.out"
    tap_run "a server and a worker with --tcp-cc dctcp train" "$WEFT_BIN" worker --transport tcp --tcp-cc dctcp \
        --servers "$(sed -n 's/^shard 0 of 1: //p' "$tap_tmp/dctcp.out")" --data "$data" \
        --epochs 1 --key-file "$tap_tmp/dctcp.key"
    kill -TERM "$server"
    wait "$server"
    ;;
"1:weft train: --tcp-cc dctcp"*) tap_skip "train --tcp-cc dctcp succeeds" "$(head -n 1 "$tap_tmp/err")" ;;
*) tap_fail "train --tcp-cc dctcp succeeds" "$(cat "$tap_tmp/out" "$tap_tmp/err")" ;;
esac

# ---- a worker is killed: the server and the other workers continue ----
"$WEFT_BIN" keygen "$tap_tmp/job.key" >/dev/null
"$WEFT_BIN" server --transport tcp --port 0 --workers 2 --key-file "$tap_tmp/job.key" \
    >"$tap_tmp/server.out" 2>"$tap_tmp/server.err" &
server=$!
tap_until grep -q '^shard 0' "$tap_tmp/server.out"
port=$(sed -n 's/^shard 0 of 1: 127.0.0.1://p' "$tap_tmp/server.out")
worker() {
    "$WEFT_BIN" worker --transport tcp --servers "127.0.0.1:$port" --workers 2 --mode asp \
        --data "$data" --key-file "$tap_tmp/job.key" "$@"
}
: >"$tap_tmp/w0"
"$WEFT_BIN" worker --transport tcp --servers "127.0.0.1:$port" --workers 2 --mode asp --rank 0 \
    --data "$data" --key-file "$tap_tmp/job.key" --epochs 10000 >"$tap_tmp/w0" 2>&1 &
victim=$!
tap_until grep -q '"event":"epoch"' "$tap_tmp/w0"
kill -9 "$victim"
wait "$victim" 2>/dev/null
tap_run "the other worker finishes" worker --rank 1 --epochs 2
tap_like "it prints its counters" "$(cat "$tap_tmp/run.out")" '"event":"done"'

# ---- error texts ----
"$WEFT_BIN" keygen "$tap_tmp/other.key" >/dev/null
tap_run_fails "a worker with another key fails" 1 "$WEFT_BIN" worker --transport tcp --servers "127.0.0.1:$port" \
    --workers 2 --rank 1 --data "$data" --key-file "$tap_tmp/other.key" --peer-timeout 5
tap_like "the worker's error names the key" "$(cat "$tap_tmp/run.out")" \
    'gone: it has not answered for 5 s; the other end reports another job key'
tap_like "the server's error names the key" "$(cat "$tap_tmp/server.err")" 'a peer with another job key sent a handshake'
tap_run_fails "a worker with another transport fails" 1 "$WEFT_BIN" worker --servers "127.0.0.1:$port" \
    --workers 2 --rank 1 --data "$data" --key-file "$tap_tmp/job.key" --peer-timeout 5
tap_like "its error is a peer timeout" "$(cat "$tap_tmp/run.out")" 'not answered for 5 s'
kill -TERM "$server"
status=0
wait "$server" || status=$?
tap_is "the server exits with 0" "$status" 0
tap_like "it prints its counters" "$(cat "$tap_tmp/server.out")" '"messages_sent"'

tap_run_fails "an unknown --tcp-cc is rejected" 1 "$WEFT_BIN" train --data "$data" \
    --transport tcp --tcp-cc nonesuch
tap_like "the error names it" "$(cat "$tap_tmp/run.out")" 'TCP congestion control "nonesuch" cannot be used'
tap_run_fails "an unknown --transport is rejected" 2 "$WEFT_BIN" train --transport sctp
tap_like "the error lists the transports" "$(cat "$tap_tmp/run.out")" 'weft or tcp'
tap_run_fails "train: TCP options without TCP: usage error" 2 "$WEFT_BIN" train --tcp-cc reno
tap_run_fails "--inject-loss over TCP: usage error" 2 "$WEFT_BIN" train --transport tcp --inject-loss 0.01
tap_run_fails "worker: --trace over TCP: usage error" 2 "$WEFT_BIN" worker --servers 127.0.0.1:1 --transport tcp \
    --trace "$tap_tmp/t"
tap_run_fails "server: --trace over TCP: usage error" 2 "$WEFT_BIN" server --transport tcp --trace "$tap_tmp/t"
tap_run_fails "server: TCP options without TCP: usage error" 2 "$WEFT_BIN" server --tcp-rto-min 5
tap_done
