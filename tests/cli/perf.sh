#!/bin/sh
# `weft perf stream`: each transport transfers its floats and prints a report; no performance is
# asserted.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

tap_run "weft perf --help" "$WEFT_BIN" perf --help
tap_like "the help lists stream" "$(cat "$tap_tmp/run.out")" '^  stream '
tap_like "the pattern's help shows an example" "$("$WEFT_BIN" perf stream --help)" \
    '^  weft perf stream --transport all'

small="--bytes 2000000 --rounds 2"
# shellcheck disable=SC2086
for transport in weft udp-raw tcp-raw; do
    tap_run "$transport runs" "$WEFT_BIN" perf stream --transport $transport $small --json
    cp "$tap_tmp/run.out" "$tap_tmp/json"
    security=none
    [ $transport != weft ] || security=auth
    tap_run "$transport prints a report" jq -e --arg transport $transport --arg security $security '
        .transport == $transport and .security == $security and .n == 2 and .bytes == 2000000 and
        .packet_bytes == 1472 and .goodput_gbps > 0 and .cpu_s > 0 and
        .goodput_gbps_min <= .goodput_gbps and .goodput_gbps <= .goodput_gbps_max and
        (.per_round | length) == 2 and (.retransmitted | type) == "number"' "$tap_tmp/json"
done

for security in none auth seal; do
    # shellcheck disable=SC2086
    tap_run "weft with --security $security runs" "$WEFT_BIN" perf stream --security $security $small
done

# A tag must not make a full packet exceed its path's size: such packets would be sent one by one.
for security in none auth seal; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do # a receiver that is not scheduled grants little at a time
        burst=$("$WEFT_BIN" perf stream --security $security --bytes 20000000 --rounds 1 --verbose 2>&1 |
            sed -n 's/^round 1:.* \([0-9]*\)\.[0-9]* packets a burst.*/\1/p')
        [ "${burst:-0}" -lt 4 ] || break
    done
    tap_is "security $security sends at least 4 packets per burst" "$((${burst:-0} >= 4))" 1
done

# Sizes with different splits of a burst: 64 packets, one packet, a short last chunk.
for packet_bytes in 256 1000 9000 65000; do
    for transport in weft udp-raw; do
        tap_run "$transport with packets of $packet_bytes bytes" "$WEFT_BIN" perf stream \
            --transport $transport --packet-bytes $packet_bytes --bytes 3000004 \
            --message-bytes 1000001 --rounds 1
    done
done
tap_run "messages of one float" "$WEFT_BIN" perf stream --bytes 40 --message-bytes 4 --rounds 1
tap_run "--cpus sets the CPU of each thread" "$WEFT_BIN" perf stream --cpus \
    "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1,\1/')" --bytes 400000 --rounds 1
tap_run "--busy-poll-us runs" "$WEFT_BIN" perf stream --busy-poll-us 50 --bytes 4000000 --rounds 1

# shellcheck disable=SC2086
tap_run "--transport all runs" "$WEFT_BIN" perf stream --transport all $small --json
cp "$tap_tmp/run.out" "$tap_tmp/json"
tap_run "the report has the ratios of the same rounds" jq -e '
    ([.flows[].transport] == ["weft", "udp-raw", "tcp-raw"]) and
    ([.ratios[] | .of + " over " + .over] == ["weft auth over udp-raw", "weft auth over tcp-raw"])
    and all(.ratios[]; .ratio > 0 and .ratio_min <= .ratio and .ratio <= .ratio_max) and
    (.flows[0].per_round[0].goodput_gbps / .flows[1].per_round[0].goodput_gbps) as $first |
    .ratios[0].ratio_min <= $first * 1.000001 and $first <= .ratios[0].ratio_max * 1.000001' "$tap_tmp/json"
tap_done
