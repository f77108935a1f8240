#!/bin/sh
# Server and worker on two hosts: network namespaces joined by a virtual cable. The addresses
# are not loopback addresses: security auth and seal are allowed there, none only with
# --insecure-network. Skipped if namespaces cannot be created (root only).
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR WEFT_JOB_KEY
a=weft-a-$$
b=weft-b-$$
server=

remove() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
}
make() {
    ip netns add "$a" && ip netns add "$b" &&
        ip link add cable netns "$a" type veth peer name cable netns "$b" &&
        ip -n "$a" address add 10.77.0.1/24 dev cable &&
        ip -n "$b" address add 10.77.0.2/24 dev cable &&
        ip -n "$a" address add fd77::1/64 dev cable nodad &&
        ip -n "$b" address add fd77::2/64 dev cable nodad &&
        ip -n "$a" link set lo up && ip -n "$b" link set lo up &&
        ip -n "$a" link set cable up && ip -n "$b" link set cable up
}
tap_at_exit 'kill $server 2>/dev/null; wait; remove'
if ! make >"$tap_tmp/make" 2>&1; then
    tap_skip "two hosts" "no network namespaces: $(head -n 1 "$tap_tmp/make")"
    tap_done
fi

awk 'BEGIN { for (i = 0; i < 2000; i++) printf "%d,Private,%d,9th,5,Divorced,Sales,Wife,White,Male," \
    "0,0,40,United-States,%s50K\n", 17 + i % 70, i, i % 3 ? "<=" : ">" }' >"$tap_tmp/rows.csv"
"$WEFT_BIN" keygen "$tap_tmp/job.key" >"$tap_tmp/keygen"

# run <name> <server's address> <address in --servers> <expected exit status> <options of both...>
run() {
    name=$1
    host=$2
    towards=$3
    wanted=$4
    shift 4
    : >"$tap_tmp/server"
    ip netns exec "$a" "$WEFT_BIN" server --host "$host" --port 7700 --workers 1 "$@" \
        >"$tap_tmp/server" 2>"$tap_tmp/server.err" &
    server=$!
    tries=0
    until grep -q '^shard 0' "$tap_tmp/server" || ! kill -0 "$server" 2>/dev/null ||
        [ "$tries" = 2400 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    status=0
    ip netns exec "$b" "$WEFT_BIN" worker --data "$tap_tmp/rows.csv" --epochs 1 \
        --servers "$towards:7700" "$@" >"$tap_tmp/worker" 2>&1 || status=$?
    kill "$server" 2>/dev/null
    server_status=0
    wait "$server" || server_status=$?
    server=
    tap_is "$name: the worker's exit status" "$status" "$wanted"
    tap_is "$name: the server's exit status" "$server_status" "$wanted"
}
key="--key-file $tap_tmp/job.key"
# shellcheck disable=SC2086
run "auth" 10.77.0.1 10.77.0.1 0 $key
# shellcheck disable=SC2086
run "seal, every address" 0.0.0.0 10.77.0.1 0 $key --security seal
# shellcheck disable=SC2086
run "IPv6" fd77::1 '[fd77::1]' 0 $key
# shellcheck disable=SC2086
run "TCP" 10.77.0.1 10.77.0.1 0 $key --transport tcp
# shellcheck disable=SC2086
run "TCP, seal, IPv6, every address" :: '[fd77::1]' 0 $key --security seal --transport tcp
run "TCP, none" 10.77.0.1 10.77.0.1 2 --security none --transport tcp
tap_like "TCP, none: the worker's error names --insecure-network" "$(cat "$tap_tmp/worker")" \
    '10.77.0.1 is beyond loopback.*--insecure-network'
run "none" 10.77.0.1 10.77.0.1 2 --security none
tap_like "none: the worker's error names --insecure-network" "$(cat "$tap_tmp/worker")" \
    '10.77.0.1 is beyond loopback.*--insecure-network'
tap_like "none: the server's error names --insecure-network" "$(cat "$tap_tmp/server.err")" \
    '10.77.0.1 is beyond loopback.*--insecure-network'
run "none with --insecure-network" 10.77.0.1 10.77.0.1 0 --security none --insecure-network

tap_done
