#!/bin/sh
# `weft perf` on the hosts of a lab: the reported network equals the lab's parameters, the ideal
# time follows bench/METRICS.md with each transport's headers, losses are detected and recovered,
# and `weft perf compare` creates and removes networks. No time is asserted here.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
# shellcheck source=tests/lab/judge.sh
. "$WEFT_SOURCE_ROOT/tests/lab/judge.sh"
unset WEFT_JOB_KEY WEFT_LAB
lab=perf-$$
tap_at_exit '"$WEFT_BIN" lab down $lab 2>/dev/null'
if ! "$WEFT_BIN" lab up $lab --hosts 4 --rate 200mbit --buffer 64kb --loss 0.02 \
    >"$tap_tmp/up" 2>&1; then
    tap_skip "weft perf --lab" "no lab: $(tail -n 1 "$tap_tmp/up")"
    tap_done
fi

incast() {
    name=$1
    shift
    tap_run "$name" "$WEFT_BIN" perf incast --lab $lab --senders 3 --bytes 100000 --rounds 10 \
        --warmup 3 --json "$@"
    cp "$tap_tmp/run.out" "$tap_tmp/json"
}

# 72 packets of 1,408 bytes, the first with 106 of headers, the others with 78; 200 Mbit/s.
incast "weft"
tap_run "the report has the lab's parameters and the ideal time" jq -e --arg lab $lab '
    .lab == $lab and .topology == "star" and .offload == false and .rate_bps == 200000000 and .loss == 0.02 and
    .buffer == 65536 and .base_rtt_ms > 0 and .packet_payload_bytes == 1408 and
    (.ideal_ms - .base_rtt_ms - 3 * (100000 + 106 + 71 * 78) * 8 / 200000 | fabs) < 1e-6 and
    (.p99_ratio - .round_ms.p99 / .ideal_ms | fabs) < 1e-9' "$tap_tmp/json"
tap_run "the median round takes at least 0.9 of the ideal time" jq -e '
    .round_ms.p50 > 0.9 * .ideal_ms' "$tap_tmp/json"
tap_run "lost packets are retransmitted" jq -e '
    .delivered_fraction.min == 1 and .retransmitted_packets > 0' "$tap_tmp/json"
incast "incast --per-round" --per-round "$tap_tmp/rounds"
if jq -e '.undisturbed_ms' "$tap_tmp/json" >/dev/null; then
    left=$(awk '!/^#/ && $NF == 1 { n++ } END { print n + 0 }' "$tap_tmp/rounds")
    most=$(awk '!/^#/ && $NF == 1 && $2 > m { m = $2 } END { printf "%.6f", m }' "$tap_tmp/rounds")
    tap_run "the report counts the undisturbed rounds of the file" jq -e --argjson left "$left" --argjson most "$most" '
        .undisturbed_ms.rounds == $left and (.undisturbed_ms.max - $most | fabs) < 1e-6 and
        (.undisturbed_ms.window_ms - 1.25 * .ideal_ms | fabs) < 1e-5' "$tap_tmp/json"
else
    tap_skip "the report counts the undisturbed rounds of the file" "this kernel does not permit perf_event_open"
fi
incast "weft with --security none" --security none
tap_run "its ideal time is without tags" jq -e '
    (.ideal_ms - .base_rtt_ms - 3 * (100000 + 90 + 71 * 62) * 8 / 200000 | fabs) < 1e-6' "$tap_tmp/json"
incast "weft with --bound 0.1" --bound 0.1
tap_run "at most 10 % of the values are missing" jq -e '.delivered_fraction.min >= 0.9' "$tap_tmp/json"
# Where processes wait for a processor, lost packets are sent again before the receiver has ended the
# message; in 20 runs beside other work between 19 and 371 packets were.
bounded() {
    "$WEFT_BIN" perf incast --lab $lab --senders 3 --bytes 100000 --rounds 10 --warmup 3 --bound 0.1 \
        --json >"$tap_tmp/json" 2>&1
    seen=$(jq -c .delivered_fraction "$tap_tmp/json")
    jq -e '.delivered_fraction.mean < 1 and .delivered_fraction.min >= 0.9' "$tap_tmp/json" >/dev/null
}
judge "some values are missing, at most 10 %" bounded

# 70 segments of 1,448 bytes and 66 of headers.
incast "plain TCP, minimum RTO 5 ms" --transport tcp-raw --tcp-cc reno --tcp-rto-min 5
tap_run "the report has its ideal time, its retransmissions, its RTO" jq -e '
    (.ideal_ms - .base_rtt_ms - 3 * (100000 + 70 * 66) * 8 / 200000 | fabs) < 1e-6 and
    .delivered_fraction.min == 1 and .retransmitted_packets > 0 and .cc == "reno" and
    .tcp_rto_min_ms == 5 and .rto_ms >= 5' "$tap_tmp/json"
short() { # the kernel's default minimum is 200 ms; the measured round trip is added to it, also if the link stalled
    "$WEFT_BIN" perf incast --lab $lab --senders 3 --bytes 100000 --rounds 10 --transport tcp-raw \
        --tcp-cc reno --tcp-rto-min 5 --json >"$tap_tmp/json" 2>&1
    seen="$(jq .rto_ms "$tap_tmp/json") ms"
    jq -e '.rto_ms < 150' "$tap_tmp/json" >/dev/null
}
judge "the minimum RTO of 5 ms is in effect" short
# The whole round is in the senders' buffers at once, and its retransmissions are later. They count. Of 60
# segments, none is lost with a probability of 0.3.
tries=0
resent=0
while [ "$resent" = 0 ] && [ $tries -lt 12 ]; do
    tries=$((tries + 1))
    resent=$("$WEFT_BIN" perf incast --lab $lab --senders 3 --bytes 28000 --rounds 1 --warmup 0 \
        --transport tcp-raw --tcp-cc reno --json | jq .retransmitted_packets)
done
tap_is "retransmissions after plain TCP's last round are counted" "$((resent > 0))" 1
incast "weft over TCP" --transport tcp
tap_run "weft over TCP delivers everything" jq -e '.delivered_fraction.min == 1 and .ideal_ms > 0' "$tap_tmp/json"
incast "plain UDP" --transport udp-raw
tap_run "plain UDP does not deliver everything" jq -e '.delivered_fraction.mean < 1' "$tap_tmp/json"
most() {
    "$WEFT_BIN" perf incast --lab $lab --senders 3 --bytes 100000 --rounds 10 --transport udp-raw --json \
        >"$tap_tmp/json" 2>&1
    seen=$(jq .delivered_fraction.mean "$tap_tmp/json")
    jq -e '.delivered_fraction.mean > 0.1' "$tap_tmp/json" >/dev/null
}
judge "plain UDP delivers more than 10 %" most
tap_run "incast: three senders, two of them on the receiver's host" "$WEFT_BIN" perf incast --lab $lab \
    --hosts 0,0,0,1 --senders 3 --bytes 100000 --rounds 3 --transport tcp-raw --tcp-cc reno --json
tap_run "its ideal time has one message on the link" jq -e '
    (.ideal_ms - .base_rtt_ms - (100000 + 70 * 66) * 8 / 200000 | fabs) < 1e-6' "$tap_tmp/run.out"
tap_run "pingpong between hosts given by number" "$WEFT_BIN" perf pingpong --lab $lab --hosts 3,1 --rounds 20 --json \
    --transport tcp-raw
# From here on these hosts lose nothing but the first SYN of host 1. A client that repeats its SYN
# without ECN falls back to Reno.
lose_a_syn() {
    for host in 0 1 2; do
        "$WEFT_BIN" lab exec $lab $host -- nft flush chain netdev weft arrival
    done
    "$WEFT_BIN" lab exec $lab 0 -- nft add rule netdev weft arrival \
        'ip saddr 10.77.0.2 tcp flags & (syn | ack) == syn numgen inc mod 1000000 == 0 counter drop'
}
lost_syns() {
    "$WEFT_BIN" lab exec $lab 0 -- nft list chain netdev weft arrival |
        sed -n 's/.*counter packets \([0-9]*\) .*drop.*/\1/p'
}
dctcp() {
    lose_a_syn
    "$WEFT_BIN" perf incast --lab $lab --senders 2 --bytes 20000 --rounds 3 \
        --transport tcp-raw --tcp-cc dctcp --json >"$tap_tmp/json" 2>"$tap_tmp/err"
}
if dctcp; then
    tap_run "DCTCP is reported by name" jq -e '.cc == "dctcp" and .delivered_fraction.min == 1' \
        "$tap_tmp/json"
    tap_is "one SYN was lost meanwhile" "$(lost_syns)" 1
    "$WEFT_BIN" lab exec $lab 1 -- sysctl -q net.ipv4.tcp_ecn_fallback=1
    dctcp
    tap_like "a connection that fell back to Reno is reported" "$(jq -r .cc "$tap_tmp/json")" \
        '^\(dctcp-\)\{0,1\}reno$' # the kernel's DCTCP calls it dctcp-reno
else
    tap_skip "DCTCP is reported by name" "$(head -n 1 "$tap_tmp/err")"
fi
tap_run "60 MB at 200 Mbit/s with --timeout-s 1" "$WEFT_BIN" perf incast --lab $lab \
    --senders 3 --bytes 20000000 --timeout-s 1 --warmup 0 --rounds 3 --json
tap_run "the report says that the round did not finish" jq -e '.dnf and .rounds == 0 and .rounds_asked == 3' "$tap_tmp/run.out"
tap_run_fails "perf fails with more participants than hosts" 1 "$WEFT_BIN" perf incast --lab $lab --senders 4
tap_like "the error has both numbers" "$(cat "$tap_tmp/run.out")" '5 participants and 4 hosts'
tap_run_fails "perf fails if a host does not exist" 1 "$WEFT_BIN" perf pingpong --lab $lab --hosts 0,4
tap_like "the error names the host" "$(cat "$tap_tmp/run.out")" 'no host 4'

for transport in weft tcp-raw; do
    tap_run "stream from host to host: $transport" "$WEFT_BIN" perf stream --lab $lab --hosts 2,1 \
        --transport $transport --bytes 2000000 --message-bytes 500000 --rounds 1 --json
    tap_run "its goodput is below 0.3 Gbit/s" jq -e '.lab != null and .goodput_gbps < 0.3' \
        "$tap_tmp/run.out"
done

# Results in a lab, under the name of the next one.
# shellcheck disable=SC2016 # of the shell in the lab
compare_links() {
    "$WEFT_BIN" lab run --hosts 2 "$@" -- sh -c '
        [ ! -e "$1" ] || mv "$1"/incast-1x250000-run-* "$1/incast-1x250000-$WEFT_LAB" || exit
        "$0" perf compare --lab "$WEFT_LAB" --senders 1 --rounds 2 --transports weft:0 --repetitions 1 --out "$1"' \
        "$WEFT_BIN" "$tap_tmp/links"
}
tap_run "compare in a lab with equal links" compare_links
tap_run "ideal_ms is a number" jq -e '.networks[0].cells[0].runs[0].ideal_ms > 0' "$tap_tmp/links/compare.json"
tap_run "compare in a lab of the same name with links of two rates" compare_links --uplink 1=100mbit
tap_run "it measures again, and ideal_ms is null" jq -e '.networks[0].cells[0].runs[0].ideal_ms == null' \
    "$tap_tmp/links/compare.json"

# shellcheck disable=SC2016
tap_run "a lab with segmentation offload" "$WEFT_BIN" lab run --hosts 2 --offload -- sh -c \
    '"$0" perf compare --lab "$WEFT_LAB" --senders 1 --rounds 3 --transports weft:0,tcp-raw:reno --out "$1" \
        --repetitions 1' "$WEFT_BIN" "$tap_tmp/offload"
tap_like "the table names segmentation offload" "$(cat "$tap_tmp/run.out")" ' lab run-[0-9]*, segmentation offload: '
tap_run "every run of the report has offload" jq -e '[.networks[0].cells[].runs[].offload] == [true, true]' \
    "$tap_tmp/offload/compare.json"
mv "$tap_tmp"/offload/incast-1x250000-run-[0-9]* "$tap_tmp/offload/incast-1x250000-$lab"
tap_run "compare in a lab of the same name without offload" "$WEFT_BIN" perf compare --lab $lab --senders 1 --rounds 3 \
    --transports weft:0,tcp-raw:reno --out "$tap_tmp/offload" --repetitions 1
tap_run "it measures again instead of using the results with offload" jq -e '[.networks[0].cells[].runs[].offload] == [false, false]' \
    "$tap_tmp/offload/compare.json"
# The first of these labs has another rate, loss and buffer than $lab, whose name its results get.
tap_run "compare in a lab at 50 Mbit/s" "$WEFT_BIN" lab run --hosts 2 --rate 50mbit -- sh -c \
    '"$0" perf compare --lab "$WEFT_LAB" --senders 1 --rounds 3 --transports weft:0 --out "$1" \
        --repetitions 1' "$WEFT_BIN" "$tap_tmp/slow"
mv "$tap_tmp"/slow/incast-1x250000-run-[0-9]* "$tap_tmp/slow/incast-1x250000-$lab"
compare_slow() {
    "$WEFT_BIN" perf compare --lab $lab --senders 1 --rounds 3 --transports weft:0 --out "$tap_tmp/slow" \
        --repetitions 1 && jq -e '[.networks[0].cells[].runs[] | .rate_bps, .loss, .buffer] ==
        [200000000, 0.02, 65536]' "$tap_tmp/slow/compare.json"
}
tap_run "compare in a lab of the same name at 200 Mbit/s measures again" compare_slow
cp -p "$tap_tmp/slow/incast-1x250000-$lab/weft_0.1.json" "$tap_tmp/slow.json"
tap_run "once more: it succeeds" compare_slow
tap_run "it uses the results of the same lab" cmp "$tap_tmp/slow.json" "$tap_tmp/slow/incast-1x250000-$lab/weft_0.1.json"

tap_is "TCP metrics are not cached between runs" \
    "$("$WEFT_BIN" lab exec $lab 1 -- ip tcp_metrics show 2>&1)" ""

# The lab ends during a run, after the receiver has a megabyte.
received() { "$WEFT_BIN" lab exec $lab 0 -- cat /sys/class/net/eth0/statistics/rx_bytes; }
before=$(received)
under_way() { [ "$(received)" -gt "$((before + 1000000))" ]; }
"$WEFT_BIN" perf incast --lab $lab --senders 3 --bytes 20000 --rounds 1000000 >"$tap_tmp/out" \
    2>"$tap_tmp/err" &
perf=$!
lab_until 120 under_way
"$WEFT_BIN" lab down $lab >/dev/null || kill -KILL $perf
wait $perf
tap_is "the lab ends during a run: exit status 1" $? 1
tap_like "the error names the host whose process was killed" "$(cat "$tap_tmp/err")" '(host [0-3]).* killed'

tap_run "compare on two networks of its own" "$WEFT_BIN" perf compare --loss 0,0.02 --buffer 64kb \
    --rate 203mbit --senders 2 --bytes 50000 --rounds 4 --repetitions 2 \
    --transports weft:0,tcp-raw:reno:rto5 --out "$tap_tmp/results" --json
tap_run "the report has four cells with ratios" jq -e '
    ([.networks[].loss] == [0, 0.02]) and ([.networks[].cells[]] | length) == 4 and
    all(.networks[].cells[]; .repetitions == 2 and .p99_ratio > 0.9)' "$tap_tmp/run.out"
tap_run "compare beside a busy process (--busy 1)" "$WEFT_BIN" perf compare --loss 0 --buffer 64kb \
    --rate 203mbit --senders 2 --bytes 50000 --rounds 4 --repetitions 1 --busy 1 \
    --transports weft:0,tcp-raw:reno --out "$tap_tmp/results" --json
tap_run "its results are in a directory and a network of their own" jq -e '.networks[0] | .busy == 1 and (.name | endswith("-loss0-busy1")) and
    [.cells[].runs[].busy] == [1, 1]' "$tap_tmp/run.out"
of_other_buckets=$(find "$tap_tmp"/results/*loss0 -name 'weft_0.1.json' | head -n 1)
had=$(jq .htb_hysteresis "$of_other_buckets")
jq '.htb_hysteresis |= not | .rounds_of_old = true' "$of_other_buckets" >"$tap_tmp/old"
cp "$tap_tmp/old" "$of_other_buckets"
tap_run "compare again, with one result of another HTB hysteresis" "$WEFT_BIN" perf compare --loss 0,0.02 \
    --buffer 64kb --rate 203mbit --senders 2 --bytes 50000 --rounds 4 --repetitions 2 \
    --transports weft:0,tcp-raw:reno:rto5 --out "$tap_tmp/results" --json
tap_is "that result is measured again" "$(jq -c '[.htb_hysteresis, .rounds_of_old]' "$of_other_buckets")" \
    "[$had,null]"
tap_is "compare leaves no lab behind" "$("$WEFT_BIN" lab status | grep -c 203mbit)" 0
tap_done
