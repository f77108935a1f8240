#!/bin/sh
# `weft perf allreduce`, `allgather` and `broadcast` on loopback: tables, JSON, loss bounds, usage errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

json() { # json <jq filter> <arguments ...>
    filter=$1
    shift
    "$WEFT_BIN" perf "$@" --json 2>run.err | jq -r "$filter"
}
cd "$tap_tmp" || exit 1
small="--from 100 --to 50000 --factor 500 --rounds 3 --warmup 1"

# shellcheck disable=SC2086 # $small is split into options
for verb in allreduce allgather broadcast; do
    tap_is "$verb: the report has every size" \
        "$(json '[.sizes[] | select(.p50_ns > 0 and .p99_ns >= .p50_ns and .cpu_s > 0) | .bytes] | @text' \
            $verb --ranks 3 $small)" '[100,50000]'
done
# shellcheck disable=SC2086
tap_is "allreduce over TCP: the report has transport and ranks" "$(json '[.transport, .ranks, .security, (.sizes | length)] | @text' \
    allreduce --transport tcp --ranks 2 $small)" '["tcp",2,"auth",2]'
# shellcheck disable=SC2086
tap_is "allreduce with --loss-bound, --feedback and --packet-bytes: the report has the bound" "$(json '[.bound_ppm, (.sizes | length)] | @text' \
    allreduce --loss-bound 0.2 --feedback --packet-bytes 1200 --ranks 4 $small)" '[200000,2]'
tap_is "one size: busbw is 2 (n - 1) / n of algbw" "$(json \
    '.sizes[0] | (.busbw_gbytes_per_s / .algbw_gbytes_per_s * 1000 | round)' \
    allreduce --ranks 4 --from 4096 --to 4096 --rounds 2)" 1500
"$WEFT_BIN" perf allreduce --from 1000 --to 1000 --rounds 2 >table.out 2>run.err
tap_like "the table has a row for the size" "$(cat table.out)" '^ *1000 .*[0-9]'
tap_like "the first line of the table names operation, ranks, network and security" "$(head -n 1 table.out)" '^all_reduce, 2 ranks, loopback, auth'

# shellcheck disable=SC2086
{
    tap_is "allreduce with a plan for a slow link: slices" "$(json '[.plan, .planned, .plan_parts, (.sizes | length)] | @text' \
        allreduce --ranks 4 --plan auto --link-mbps 1000,1000,1000,100 $small)" '["auto","slices",0,2]'
    tap_is "allreduce with a plan for two hosts: trees" "$(json '[.planned, .plan_parts, .plan_depth] | @text' \
        allreduce --ranks 4 --plan auto --host-ranks 2 --from 400000 --to 400000 --rounds 2)" '["trees",4,2]'
    tap_is "a plan, and a bound" "$(json '[.planned, .bound_ppm] | @text' \
        allreduce --ranks 3 --plan trees --loss-bound 0.2 --feedback --from 400000 --to 400000 --rounds 2)" '["trees",200000]'
    tap_is "without a plan the report has none" "$(json '[.plan, .planned] | @text' allreduce --ranks 2 $small)" '["none",null]'
}
"$WEFT_BIN" perf allreduce --ranks 4 --plan trees --from 100000 --to 100000 --rounds 2 >table.out 2>run.err
tap_like "the table begins with the plan" "$(sed -n 2p table.out)" '^plan: trees, [0-9]* parts, depth [0-9]*; predicted for 100000 bytes: equal slices'

"$WEFT_BIN" aggregate --dense 127.0.0.1:0 --members 3 --security none --inject-loss 0.1 >box.out 2>box.err &
box=$!
tap_at_exit 'kill $box 2>/dev/null; wait'
tap_until grep -q '^box: ' box.out
at=$(sed -n 's/^box: \([0-9.:]*\),.*/\1/p' box.out)
# shellcheck disable=SC2086
tap_is "allreduce through a box that loses packets: the report has the box" "$(json '[.box, .ranks, (.sizes | length)] | @text' \
    allreduce --ranks 3 --security none --box "$at" $small)" "[\"$at\",3,2]"
tap_is "busbw is algbw through a box" "$(json '.sizes[0] | (.busbw_gbytes_per_s / .algbw_gbytes_per_s)' \
    allreduce --ranks 3 --security none --box "$at" --from 4096 --to 4096 --rounds 2)" 1
"$WEFT_BIN" perf allreduce --ranks 3 --security none --box "$at" --from 4096 --to 4096 --rounds 2 >table.out 2>run.err
tap_like "the first line of the table names the box" "$(head -n 1 table.out)" "^all_reduce, 3 ranks, loopback, box $at, none"
tap_like "the table has a column of resent packets" "$(sed -n 2p table.out)" 'resent$'
tap_run_fails "fails through a box with more members than ranks" 1 "$WEFT_BIN" perf allreduce --ranks 2 --security none \
    --box "$at" --from 4096 --to 4096 --timeout-s 1
tap_like "the error names missing sums and members" "$(cat run.out)" "3 of 3 chunks have no sum. Is $at a box with 2 members"
tap_run_fails "fails with an exponent other than the box's" 1 "$WEFT_BIN" perf allreduce --ranks 3 --security none --box "$at" \
    --from 4096 --to 4096 --exponent 3
tap_like "the error names the exponent" "$(cat run.out)" 'the box does not sum int32 with exponent 3'
# shellcheck disable=SC2086
tap_is "allreduce with block exponents" "$(json '[.sizes[].bytes] | @text' \
    allreduce --ranks 3 --security none --box "$at" --block-float $small)" '[100,50000]'
kill "$box"
wait "$box"
tap_is "the box exits with 0" $? 0

refused() { # refused <expected message> <arguments ...>
    words=$1
    shift
    status=0
    "$WEFT_BIN" perf "$@" >run.out 2>run.err || status=$?
    tap_is "$*: exit status" "$status" 2
    tap_like "$*: the error says why" "$(cat run.err)" "$words"
}
refused '2000 is larger than --to 1000' allreduce --from 2000 --to 1000
refused 'require allreduce' broadcast --loss-bound 0.1
refused 'too small; at least 1200' allgather --packet-bytes 100
refused '--hosts requires --lab' allreduce --hosts 0,1
refused 'require --plan' allreduce --link-mbps 100
refused 'require --plan' allreduce --host-ranks 2
refused 'list of rates in Mbit/s' allreduce --plan auto --link-mbps 100,,1
refused 'list of rates in Mbit/s' allreduce --plan auto --ranks 2 --link-mbps 1,2,3
refused '--plan requires allreduce' broadcast --plan auto
refused '1.*not allowed' allreduce --ranks 1
refused 'needs --security none' allreduce --box 127.0.0.1:1
refused '--box requires allreduce' allgather --box 127.0.0.1:1 --security none
refused 'without --loss-bound' allreduce --box 127.0.0.1:1 --security none --loss-bound 0.1
refused 'at most 64 members' allreduce --box 127.0.0.1:1 --security none --ranks 65
refused 'give one of' allreduce --box 127.0.0.1:1 --security none --float32 --exponent 1
refused 'give one of' allreduce --box 127.0.0.1:1 --security none --float32 --block-float
refused 'give one of' allreduce --box 127.0.0.1:1 --security none --block-float --exponent 1
tap_run_fails "an invalid --box address is rejected" 1 "$WEFT_BIN" perf allreduce --box nowhere: --security none
tap_like "the error names the address" "$(cat run.out)" '--box nowhere: is not HOST:PORT'
status=0
"$WEFT_BIN" perf allreduce --lab no-such-lab --from 4 --to 1000 >run.out 2>run.err || status=$?
tap_is "no such lab: exit status" "$status" 1
tap_done
