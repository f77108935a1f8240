#!/bin/sh
# `weft perf allreduce`, `allgather` and `broadcast` on loopback: tables, JSON, bounds, wrong options.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

json() { # json <jq filter> <arguments ...>
    filter=$1
    shift
    "$WEFT_BIN" perf "$@" --json 2>run.err | jq -r "$filter"
}
cd "$tap_tmp" || exit 1
small="--from 100 --to 50000 --factor 500 --rounds 3 --warmup 1"

# shellcheck disable=SC2086 # options are words
for verb in allreduce allgather broadcast; do
    tap_is "$verb: every size, checked" \
        "$(json '[.sizes[] | select(.p50_ns > 0 and .p99_ns >= .p50_ns and .cpu_s > 0) | .bytes] | @text' \
            $verb --ranks 3 $small)" '[100,50000]'
done
# shellcheck disable=SC2086
tap_is "over TCP" "$(json '[.transport, .ranks, .security, (.sizes | length)] | @text' \
    allreduce --transport tcp --ranks 2 $small)" '["tcp",2,"auth",2]'
# shellcheck disable=SC2086
tap_is "with a bound, short packets and feedback" "$(json '[.bound_ppm, (.sizes | length)] | @text' \
    allreduce --loss-bound 0.2 --feedback --packet-bytes 1200 --ranks 4 $small)" '[200000,2]'
tap_is "one size: busbw is 2 (n - 1) / n of algbw" "$(json \
    '.sizes[0] | (.busbw_gbytes_per_s / .algbw_gbytes_per_s * 1000 | round)' \
    allreduce --ranks 4 --from 4096 --to 4096 --rounds 2)" 1500
"$WEFT_BIN" perf allreduce --from 1000 --to 1000 --rounds 2 >table.out 2>run.err
tap_like "a table" "$(cat table.out)" '^ *1000 .*[0-9]'
tap_like "whose head says what" "$(head -n 1 table.out)" '^all_reduce, 2 ranks, loopback, auth'

refused() { # refused <expected message> <arguments ...>
    words=$1
    shift
    status=0
    "$WEFT_BIN" perf "$@" >run.out 2>run.err || status=$?
    tap_is "$*: exit status" "$status" 2
    tap_like "and why" "$(cat run.err)" "$words"
}
refused '2000 is larger than --to 1000' allreduce --from 2000 --to 1000
refused 'require allreduce' broadcast --loss-bound 0.1
refused 'too small; at least 1200' allgather --packet-bytes 100
refused '--hosts requires --lab' allreduce --hosts 0,1
refused '1.*not allowed' allreduce --ranks 1
status=0
"$WEFT_BIN" perf allreduce --lab no-such-lab --from 4 --to 1000 >run.out 2>run.err || status=$?
tap_is "no such lab: exit status" "$status" 1
tap_done
