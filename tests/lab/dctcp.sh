#!/bin/bash
# DCTCP as a BPF program in the kernel: its computation, the echo of every mark, and complete removal when
# its process is killed.
#
#   namespace a --- veth --- namespace s (marks, drops) --- veth, token bucket --> namespace b
#
# Needs root. WEFT_DCTCP is the program of tests/lab/dctcp.c.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/hop.sh
. "$WEFT_SOURCE_ROOT/tests/lab/hop.sh"
# shellcheck source=tests/lab/judge.sh
. "$WEFT_SOURCE_ROOT/tests/lab/judge.sh"

queue() { # <add|change> <bytes>
    ip netns exec "$s" tc qdisc "$1" dev sb root tbf rate 200mbit burst 10kb limit "$2"
}
bottleneck() {
    queue add 400000 &&
        ip netns exec "$s" nft add table ip weft &&
        ip netns exec "$s" nft add chain ip weft forward \
            '{ type filter hook forward priority 0; }' &&
        ip netns exec "$b" nft add table ip weft &&
        ip netns exec "$b" nft add chain ip weft input '{ type filter hook input priority 0; }'
}

# rule <nft statement...>: sets the only rule for packets to b; no rule without arguments.
rule() {
    ip netns exec "$s" nft flush chain ip weft forward
    [ $# = 0 ] || ip netns exec "$s" nft add rule ip weft forward ip daddr 10.77.1.1 "$@"
}
# Marks that reach b: on a busy machine some marked packets are dropped afterwards.
count_marks() {
    ip netns exec "$b" nft flush chain ip weft input
    ip netns exec "$b" nft add rule ip weft input tcp dport 7001 ip ecn ce counter
}
counted() {
    ip netns exec "$b" nft list chain ip weft input | sed -n 's/.*counter packets \([0-9]*\).*/\1/p'
}
# run <seconds> [cc of the server]; value <key> then prints a result.
run() {
    "$WEFT_DCTCP" run "$b" "$a" 10.77.1.1 "$@" >"$tap_tmp/out" 2>"$tap_tmp/err" ||
        echo "# $(cat "$tap_tmp/err")"
    seen=$(tr '\n' ' ' <"$tap_tmp/out")
}
value() {
    sed -n "s/^$1 //p" "$tap_tmp/out"
}
# holds <awk condition on v[key]>: prints 1 if it is true, otherwise 0
holds() {
    awk '{ v[$1] = $2 } END { print ('"$1"') ? 1 : 0 }' "$tap_tmp/out"
}
available() {
    tr ' ' '\n' </proc/sys/net/ipv4/tcp_available_congestion_control | grep -c "^$1\$"
}

name="DCTCP by BPF"
command -v nft >/dev/null || hop_skip "$name" "nft is not installed (package nftables)"
hop_or_skip "$name" bottleneck

# Two at a time; each is removed with its process.
"$WEFT_DCTCP" hold >"$tap_tmp/one" 2>"$tap_tmp/err" &
pids+=($!)
"$WEFT_DCTCP" hold >"$tap_tmp/two" 2>"$tap_tmp/err2" &
pids+=($!)
for _ in $(seq 2400); do
    [ -s "$tap_tmp/one" ] && [ -s "$tap_tmp/two" ] && break
    if ! kill -0 "${pids[0]}" 2>/dev/null; then
        wait "${pids[0]}"
        [ $? = 77 ] && hop_skip "$name" "$(head -n 1 "$tap_tmp/err")"
        break
    fi
    sleep 0.05
done
one=$(sed -n 's/^name //p' "$tap_tmp/one")
two=$(sed -n 's/^name //p' "$tap_tmp/two")
tap_is "two processes register DCTCP at the same time" "$(available "$one") $(available "$two")" "1 1"
kill -KILL "${pids[@]}"
wait "${pids[@]}" 2>/dev/null
pids=()
for _ in $(seq 2400); do
    left=$(($(available "$one") + $(available "$two")))
    [ "$left" = 0 ] && break
    sleep 0.05
done
tap_is "after SIGKILL neither is registered" "$left" 0

# No marks: alpha falls to zero, no window is cut for a mark, and the link is full.
rule
unmarked() {
    run 2
    [ "$(holds 'v["connections"] >= 1 && v["without_ecn"] == 0 && v["windows"] > 20 &&
        v["alpha_last"] <= 0.9375 ^ v["windows"] + 0.0001 &&
        v["cuts"] == v["losses"] && v["marked"] == 0')" = 1 ]
}
# formula <name> <counter> <condition>: not conclusive if the counter is 0.
formula() {
    if [ "$(holds "v[\"$2\"] > 0")" = 1 ]; then
        tap_is "$1" "$(holds "$3")" 1
    else
        tap_skip "$1" "no valid measurement on this machine: no $2 were seen"
    fi
}
judge "no marks: ECN was negotiated, alpha fell by a sixteenth per window, no cut without a loss" unmarked
formula "no marks: alpha and every cut follow RFC 8257" windows \
    'v["alpha_wrong"] + v["cut_wrong"] + v["loss_wrong"] == 0'
tap_is "detach removes DCTCP while its process runs" "$(value left)" 0
fast() {
    run 2
    [ "$(holds 'v["bytes"] * 8 / 2 > 100e6')" = 1 ]
}
judge "no marks: at least 100 of 200 Mbit/s" fast

# One packet in ten is marked at random. The queue is large enough to lose nothing:
# around a loss the echo covers more packets than were marked.
queue change 4000000
rule tcp dport 7001 numgen random mod 10 == 0 ip ecn set ce
tenth() {
    count_marks
    run 2
    marks=$(counted)
    seen="$seen$marks marks arrived"
    [ "$(holds 'v["losses"] > 0')" = 0 ] || judge_unfit="packets were lost, so the echo is not exact"
    [ "$(holds 'v["windows"] > 200')" = 1 ] || judge_unfit="too few round trips for a mean"
    [ "$(holds 'v["windows"] > 200 && v["cuts"] > 100 && v["alpha_mean"] > 0.08 && v["alpha_mean"] < 0.13 &&
        v["acks"] > 0 && v["missed"] == 0 && v["marked"] > 0.98 * '"$marks"' &&
        v["marked"] < 1.02 * '"$marks")" = 1 ]
}
judge "10 % marked: mean alpha is 0.1, the echo is exact to 2 %, a change of CE is acknowledged early" tenth
formula "10 % marked: alpha and every cut follow RFC 8257" cuts \
    'v["alpha_wrong"] + v["cut_wrong"] == 0'

# A loss halves the window, as in Reno.
queue change 400000
rule tcp dport 7001 numgen random mod 200 == 0 counter drop
lossy() {
    run 2
    [ "$(holds 'v["losses"] > 5 && v["marked"] == 0')" = 1 ]
}
judge "losses are counted, and no packet is marked" lossy
formula "losses: windows are halved, whatever alpha is" losses 'v["loss_wrong"] == 0'

# A peer without ECN.
rule
ip netns exec "$b" sysctl -q net.ipv4.tcp_ecn=0
run 0.5 reno
tap_is "a peer without ECN: Reno takes over" "$(value without_ecn) $(value cc)" "1 reno"
tap_done
