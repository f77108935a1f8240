#!/bin/bash
# `weft perf allreduce --box` in a lab: through the XDP box of its leaf and through the box of a host
# process, without losses and with them. The verb checks every element of every sum. Needs root.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
lab_or_skip
unset WEFT_JOB_KEY WEFT_LAB WEFT_METRICS

lab=test-a-$$
process=
tap_at_exit '[ -z "$process" ] || kill "$process" 2>/dev/null; wait; "$WEFT_BIN" lab down "$lab" 2>/dev/null'
up() {
    "$WEFT_BIN" lab down "$lab" 2>/dev/null
    "$WEFT_BIN" lab up "$lab" "$@"
}
# sums <box> <options>: all_reduce of 3 ranks through that box
sums() {
    local box=$1
    shift
    "$WEFT_BIN" perf allreduce --lab "$lab" --ranks 3 --box "$box" --security none --from 1000 --to 250000 \
        --factor 250 --rounds 4 --warmup 1 --json "$@" >"$tap_tmp/sums.json"
}
of() { jq -r "$1" "$tap_tmp/sums.json"; }

# ---- the box of a host process, on host 3
begin() { # begin <options>
    : >"$tap_tmp/box.out"
    "$WEFT_BIN" lab exec "$lab" 3 -- "$WEFT_BIN" aggregate --dense 10.77.0.4:7701 --members 3 --security none \
        --insecure-network --json "$@" >"$tap_tmp/box.out" 2>"$tap_tmp/box.err" &
    process=$!
    tap_until grep -q '^box: ' "$tap_tmp/box.out"
}
end() {
    kill -INT "$process"
    wait "$process"
    sed 1d "$tap_tmp/box.out" >"$tap_tmp/box.json"
}
tap_run "lab up" up --hosts 4 --rate 200mbit
tap_is "host 3 has the box's address" "$("$WEFT_BIN" lab exec "$lab" 3 -- ip -4 -o address | grep -c ' 10\.77\.0\.4/')" 1
begin
tap_run "3 ranks reduce through the box process on host 3" sums 10.77.0.4:7701
tap_is "the report has both sizes and the box" "$(of '[.sizes[].bytes] | @text') $(of .box)" "[1000,250000] 10.77.0.4:7701"
end
# 1 + 4 rounds of 1 and of 178 chunks
tap_is "each chunk is summed once" "$(jq .packets.complete "$tap_tmp/box.json")" 895
begin --float32
tap_run "3 ranks reduce float32 values through the box process" sums 10.77.0.4:7701 --float32
end
up --hosts 4 --rate 200mbit --loss 0.05 >/dev/null
begin
tap_run "3 ranks reduce with 5 % loss on arrival at every host" sums 10.77.0.4:7701
end
tap_is "packets were sent again" "$(($(of '[.sizes[].packets_resent] | add') > 0))" 1
tap_is "the box resent sums" "$(($(jq .packets.result "$tap_tmp/box.json") > 0))" 1
tap_is "and each chunk is summed once" "$(jq .packets.complete "$tap_tmp/box.json")" 895

# ---- the XDP box of the leaf
if [ "$("$WEFT_BIN" doctor --json | jq -r '.facts[] | select(.name == "xdp_aggregation").state')" != ok ]; then
    tap_skip "the XDP box" "no XDP here: see weft doctor"
    tap_done
fi
box=10.77.255.254:7701
tap_run "a lab with a box" up --hosts 3 --rate 200mbit --aggregate xdp
tap_run "3 ranks reduce through the XDP box" sums $box
tap_is "each chunk is summed once" "$("$WEFT_BIN" lab box "$lab" --json | jq '.[0].packets.complete')" 895
tap_is "the report has the ideal time of a round" "$(of '.sizes[1].ideal_ns')" \
    $(((250000 + 178 * 74) * 8 * 5))
tap_run "a run with a later epoch succeeds" sums $box --epoch $(($(of .epoch) + 1))
tap_run_fails "a run with an earlier epoch fails" 1 sums $box --epoch 5 --timeout-s 1
tap_like "the error names the epoch" "$(cat "$tap_tmp/run.out")" "whose epoch was before 5"
up --hosts 3 --rate 200mbit --aggregate xdp --loss 0.05 >/dev/null
tap_run "3 ranks reduce with 5 % loss of sums" sums $box
tap_is "packets were sent again" "$(($(of '[.sizes[].packets_resent] | add') > 0))" 1
tap_is "and each chunk is summed once" "$("$WEFT_BIN" lab box "$lab" --json | jq '.[0].packets.complete')" 895
tap_run "lab box sets an exponent" "$WEFT_BIN" lab box "$lab" --exponent -8
tap_run "ranks with the same exponent reduce" sums $box --exponent -8
tap_run_fails "ranks with another exponent fail" 1 sums $box
tap_like "the error says that the box does not sum their exponent" "$(cat "$tap_tmp/run.out")" 'chunks have no valid sum: the box does not sum int32 with exponent 0'
tap_done
