#!/bin/bash
# One link, one kernel TCP (cubic) and one weft flow with `reno-fair`: TCP keeps at least 35 %.
#
#   namespace a --- veth --- namespace s --- veth, token bucket 100 Mbit/s, 100 KB --> namespace b
#
# The bottleneck is a hop away from the senders: in a queue of its own host a TCP would hold itself
# back (TCP small queues), which is not what happens in a switch.
#
# Needs root: makes three network namespaces, named by this process's number, and puts them away at
# exit. Usage: share.sh [SECONDS]. WEFT_FLOW is the program of tests/lab/flow.c.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/hop.sh
. "$WEFT_SOURCE_ROOT/tests/lab/hop.sh"

seconds=${1:-4}

bottleneck() {
    ip netns exec "$s" tc qdisc add dev sb root tbf rate 100mbit burst 10kb limit 100000
}

# share <cc of weft>: both flows for $seconds; bytes in $tcp and $weft. Not for a subshell: $pids.
share() {
    ip netns exec "$b" "$WEFT_FLOW" recv tcp 10.77.1.1 7001 >"$tap_tmp/tcp" &
    local tcp_recv=$!
    ip netns exec "$b" "$WEFT_FLOW" recv weft 10.77.1.1 7002 >"$tap_tmp/weft" &
    local weft_recv=$!
    pids+=("$tcp_recv" "$weft_recv")
    sleep 0.3
    ip netns exec "$a" "$WEFT_FLOW" send tcp 10.77.1.1 7001 "$seconds" cubic >"$tap_tmp/tcp_send" &
    local tcp_send=$!
    ip netns exec "$a" "$WEFT_FLOW" send weft 10.77.1.1 7002 "$seconds" "$1" >"$tap_tmp/weft_send" &
    local weft_send=$!
    pids+=("$tcp_send" "$weft_send")
    wait "$tcp_send" "$weft_send"
    kill -TERM "$tcp_recv" "$weft_recv" 2>/dev/null
    wait "$tcp_recv" "$weft_recv"
    pids=()
    tcp=$(sed -n 's/^bytes //p' "$tap_tmp/tcp")
    weft=$(sed -n 's/^bytes //p' "$tap_tmp/weft")
}

hop_or_skip "TCP keeps its share" bottleneck

# Three turns, and the median: whoever else computes on this machine takes turns away from a flow.
shares=()
busy=0
for _ in 1 2 3; do
    share reno-fair
    total=$((tcp + weft))
    shares+=($((total > 0 ? 100 * tcp / total : 0)))
    busy=$((busy + (total * 8 / seconds > 80000000) + (weft * 10 > total)))
    echo "# reno-fair: TCP $((tcp * 8 / seconds / 1000)) kbit/s, weft" \
        "$((weft * 8 / seconds / 1000)) kbit/s; TCP has ${shares[-1]} %"
done
median=$(printf '%s\n' "${shares[@]}" | sort -n | sed -n 2p)
# A link at rest, or with one flow alone, would prove nothing.
tap_is "the link was full, and weft had more than a tenth, each time" "$busy" 6
tap_is "TCP keeps at least 35 %" "$((median >= 35))" 1
tap_done
