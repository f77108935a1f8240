#!/bin/bash
# BPF functions of a lab's links: marks above a queue length (--ecn), under DCTCP, and bursts of loss.
# WEFT_DCTCP and WEFT_RUNS are the programs of tests/lab/dctcp.c and runs.c.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
# shellcheck source=tests/lab/judge.sh
. "$WEFT_SOURCE_ROOT/tests/lab/judge.sh"
lab_or_skip

lab=test-l-$$
tap_at_exit '"$WEFT_BIN" lab down "$lab" 2>/dev/null'

up() {
    "$WEFT_BIN" lab down "$lab" 2>/dev/null
    "$WEFT_BIN" lab up "$lab" "$@" >"$tap_tmp/up" 2>&1
}
netns() {
    lab_netns "$lab" "$1"
}
# One DCTCP flow from h0 to h1 for 2 s; sets $queue to the median of the nonempty queues towards h1.
dctcp() {
    "$WEFT_DCTCP" run "$(netns 1)" "$(netns 0)" 10.77.0.2 2 >"$tap_tmp/out" &
    local flow=$!
    while kill -0 "$flow" 2>/dev/null; do
        "$WEFT_BIN" lab exec "$lab" switch -- tc -s qdisc show dev h1
        sleep 0.02
    done | sed -n 's/.*backlog \([1-9][0-9]*\)\([KM]*\)b .*/\1 \2/p' |
        awk '{ print $1 * ($2 == "K" ? 1024 : $2 == "M" ? 1048576 : 1) }' | sort -n >"$tap_tmp/queues"
    wait "$flow"
    queue=$(sed -n "$(($(wc -l <"$tap_tmp/queues") / 2 + 1))p" "$tap_tmp/queues")
    queue=${queue:-0}
    seen="median queue $queue bytes; $(tr '\n' ' ' <"$tap_tmp/out")"
}
holds() {
    awk '{ v[$1] = $2 } END { print ('"$1"') ? 1 : 0 }' "$tap_tmp/out"
}

if ! up --hosts 2 --rate 200mbit --downlink 1=100mbit --buffer 256kb --ecn 60kb; then
    if grep -q 'no BPF' "$tap_tmp/up"; then
        tap_skip "marks and bursts" "this build has no BPF"
        tap_done
    fi
    tap_fail "lab up with --ecn succeeds" "$(cat "$tap_tmp/up")"
    tap_done
fi
tap_is "lab status reports the ECN threshold" "$(lab_fact "$lab" ecn_bytes)" 61440
marked() {
    dctcp
    [ "$queue" -gt 0 ] && [ "$queue" -lt 90000 ] &&
        [ "$(holds 'v["marked"] > 10 && v["losses"] * 1000 < v["delivered"] && v["bytes"] * 8 / 2 > 70e6')" = 1 ]
}
judge "--ecn 60kb keeps DCTCP's queue below 90 KB, with under 0.1 % lost and over 70 Mbit/s" marked
up --hosts 2 --rate 200mbit --downlink 1=100mbit --buffer 256kb
unmarked() {
    dctcp
    [ "$queue" -gt 120000 ] && [ "$(holds 'v["marked"] == 0')" = 1 ]
}
judge "without --ecn DCTCP's queue exceeds 120 KB and no packet is marked" unmarked

# 100,000 packets, 5 % lost in bursts of 8: 625 bursts, whose number has a standard error of 5 %.
up --hosts 2 --rate none --burst-loss 0.05:8
"$WEFT_RUNS" "$(netns 0)" "$(netns 1)" 10.77.0.2 100000 >"$tap_tmp/runs"
echo "# $(cat "$tap_tmp/runs")"
tap_is "--burst-loss loses about 5 % of the packets" "$(awk '{ f = $4 / $2; print (f > 0.035 && f < 0.065) }' "$tap_tmp/runs")" 1
tap_is "--burst-loss loses bursts of about 8 packets" "$(awk '{ l = $4 / $6; print (l > 6.4 && l < 9.6) }' "$tap_tmp/runs")" 1
up --hosts 2 --rate none --loss 0.05
"$WEFT_RUNS" "$(netns 0)" "$(netns 1)" 10.77.0.2 20000 >"$tap_tmp/runs"
echo "# $(cat "$tap_tmp/runs")"
tap_is "--loss loses single packets, about 5 %" \
    "$(awk '{ f = $4 / $2; l = $4 / $6; print (f > 0.04 && f < 0.06 && l < 1.2) }' "$tap_tmp/runs")" 1
tap_like "the error of an invalid --burst-loss states its format" "$("$WEFT_BIN" lab up "$lab-x" --burst-loss 0.5:1 2>&1)" \
    "FRACTION:PACKETS"
tap_done
