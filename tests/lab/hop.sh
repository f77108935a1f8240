# Two hosts and a router between them, for tests that set ECN marks, drops or link rates in ways
# that `weft lab` does not offer. A test sources this file after tests/lib/tap.sh.
#
#   namespace $a --- veth --- namespace $s, a router --- veth --> namespace $b
#   va 10.77.0.1         sa 10.77.0.2        sb 10.77.1.2         vb 10.77.1.1
#
# The namespaces are named by this process's number and removed at exit, together with the processes
# whose pids are in $pids.

a=weft-a-$$
b=weft-b-$$
s=weft-s-$$
pids=()

hop_down() {
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null
    done
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    ip netns del "$s" 2>/dev/null
}
tap_at_exit hop_down

hop_up() {
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
        ip netns exec "$s" ethtool -K sb tso off gso off gro off
}

# hop_skip <name> <why>: skip the rest of the test.
hop_skip() {
    tap_skip "$1" "$2"
    tap_done
    exit 0
}

# hop_or_skip <name> <command...>: creates the network, then runs the command, which completes it
# (queues, rules). If either fails, the rest of the test is skipped.
hop_or_skip() {
    [ "$(id -u)" = 0 ] || hop_skip "$1" "needs root, for network namespaces"
    command -v ethtool >/dev/null || hop_skip "$1" "ethtool is not installed"
    { hop_up && "${@:2}"; } >"$tap_tmp/hop" 2>&1 ||
        hop_skip "$1" "this kernel cannot create the network: $(tail -n 1 "$tap_tmp/hop")"
}
