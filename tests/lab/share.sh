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

seconds=${1:-4}
a=weft-a-$$
b=weft-b-$$
s=weft-s-$$
pids=()

put_away() {
    for pid in "${pids[@]}"; do
        kill -TERM "$pid" 2>/dev/null
    done
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    ip netns del "$s" 2>/dev/null
    rm -rf "$tap_tmp"
}
trap put_away EXIT
trap 'exit 1' INT TERM HUP

skip() {
    tap_skip "TCP keeps its share" "$1"
    tap_done
    exit 0
}

set_up() {
    ip netns add "$a" && ip netns add "$b" && ip netns add "$s" &&
        ip link add va netns "$a" type veth peer name sa netns "$s" &&
        ip link add vb netns "$b" type veth peer name sb netns "$s" &&
        ip -n "$a" addr add 10.77.0.1/24 dev va && ip -n "$s" addr add 10.77.0.2/24 dev sa &&
        ip -n "$b" addr add 10.77.1.1/24 dev vb && ip -n "$s" addr add 10.77.1.2/24 dev sb &&
        ip -n "$a" link set va up && ip -n "$b" link set vb up &&
        ip -n "$s" link set sa up && ip -n "$s" link set sb up &&
        ip -n "$a" route add default via 10.77.0.2 &&
        ip -n "$b" route add default via 10.77.1.2 &&
        ip netns exec "$s" sysctl -q net.ipv4.ip_forward=1 &&
        ip netns exec "$a" ethtool -K va tso off gso off gro off &&
        ip netns exec "$b" ethtool -K vb tso off gso off gro off &&
        ip netns exec "$s" ethtool -K sa tso off gso off gro off &&
        ip netns exec "$s" ethtool -K sb tso off gso off gro off &&
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

[ "$(id -u)" = 0 ] || skip "needs root, for network namespaces"
command -v ethtool >/dev/null || skip "ethtool is not installed"
if ! set_up >"$tap_tmp/set_up" 2>&1; then
    skip "this kernel makes no such network: $(tail -n 1 "$tap_tmp/set_up")"
fi

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
