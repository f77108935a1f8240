#!/bin/bash
# One link, one kernel TCP (cubic) and one weft flow with `reno-fair`: TCP keeps at least 35 %.
#
#   namespace a --- veth --- namespace s --- veth, token bucket 50 Mbit/s, 100 KB --> namespace b
#
# The bottleneck is a hop away from the senders: in the queue of its own host TCP limits itself (TCP
# small queues), unlike in a switch.
#
# Needs root: creates three network namespaces, named by this process's pid, and removes them at
# exit. Usage: share.sh [SECONDS]. WEFT_FLOW is the program of tests/lab/flow.c.
#
# Both flows need the processors, and weft more of them than a kernel's TCP: a measurement is
# valid if TCP alone fills the link before and after it, and the steal monitor found the processors
# available (judge.sh).
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/hop.sh
. "$WEFT_SOURCE_ROOT/tests/lab/hop.sh"
# shellcheck source=tests/lab/judge.sh
. "$WEFT_SOURCE_ROOT/tests/lab/judge.sh"

seconds=${1:-4}

bottleneck() { # a bucket of 3 ms: the timers of a virtual machine are late, and must not cost rate
    ip netns exec "$s" tc qdisc add dev sb root tbf rate 50mbit burst 20kb limit 100000
}

# receive <weft|tcp> <port>: its pid is the last of $pids. Not for a subshell.
receive() {
    ip netns exec "$b" "$WEFT_FLOW" recv "$1" 10.77.1.1 "$2" >"$tap_tmp/$1" &
    pids+=($!)
    local socket=-Hltn
    [ "$1" = weft ] && socket=-Hlun
    for _ in $(seq 2400); do
        ip netns exec "$b" ss "$socket" sport = ":$2" | grep -q . && return
        sleep 0.05
    done
}
# send <weft|tcp> <port> <seconds> <congestion control>: likewise.
send() {
    ip netns exec "$a" "$WEFT_FLOW" send "$1" 10.77.1.1 "$2" "$3" "$4" >"$tap_tmp/$1_send" 2>&1 &
    pids+=($!)
}
bytes() {
    sed -n 's/^bytes //p' "$tap_tmp/$1"
}

# alone: TCP fills the link in a second.
alone() {
    receive tcp 7001
    send tcp 7001 1 cubic
    wait "${pids[@]}"
    pids=()
    [ "$(bytes tcp)" -gt 5000000 ] # 40 Mbit/s
}

# share <cc of weft>: both flows for $seconds; bytes in $tcp and $weft.
share() {
    receive tcp 7001
    receive weft 7002
    send tcp 7001 "$seconds" cubic
    send weft 7002 "$seconds" "$1"
    wait "${pids[@]:2}"
    kill -TERM "${pids[@]:0:2}" 2>/dev/null
    wait "${pids[@]:0:2}"
    pids=()
    tcp=$(bytes tcp)
    weft=$(bytes weft)
}

hop_or_skip "TCP keeps its share" bottleneck

# The median of the arguments.
median() {
    printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"
}
# The median of three valid measurements out of at most eight.
totals=()
tcps=()
wefts=()
why=
turns=0
while [ ${#totals[@]} -lt 3 ] && [ $turns -lt 8 ]; do
    turns=$((turns + 1))
    judge_begin
    void=
    alone || void="TCP alone did not fill the link before"
    share reno-fair
    alone || void="TCP alone did not fill the link afterwards"
    judge_end
    void=${judge_disturbed:-$void}
    total=$((tcp + weft))
    echo "# reno-fair: TCP $((tcp * 8 / seconds / 1000)) kbit/s, weft" \
        "$((weft * 8 / seconds / 1000)) kbit/s${void:+; does not count: $void} ($judge_report)"
    [ -z "$void" ] || why=$void
    if [ -z "$void" ]; then
        totals+=("$((total * 8 / seconds / 1000))")
        tcps+=("$((total > 0 ? 100 * tcp / total : 0))")
        wefts+=("$((total > 0 ? 100 * weft / total : 0))")
    fi
done
if [ ${#totals[@]} -lt 3 ]; then
    hop_skip "TCP keeps its share" "no valid measurement on this machine: $why"
fi
# The share means nothing if the link was not full, or if one flow was alone.
tap_is "the link carried more than 40 Mbit/s (${totals[*]} kbit/s)" "$(($(median "${totals[@]}") > 40000))" 1
tap_is "weft had more than a tenth (${wefts[*]} %)" "$(($(median "${wefts[@]}") > 10))" 1
tap_is "TCP keeps at least 35 % (${tcps[*]} %)" "$(($(median "${tcps[@]}") >= 35))" 1
tap_done
