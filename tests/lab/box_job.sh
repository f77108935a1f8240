#!/bin/bash
# A job's all_reduce through an aggregation box in a lab (docs/COLLECTIVES.md): through the box of a host
# process, which is killed, restarted and frozen in mid-job, and through the XDP box of the leaf, which is
# given to another job and back. Each rank checks each element of each sum. Needs root.
# WEFT_BOX_JOB is the program of tests/lab/box_job.c.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
lab_or_skip
unset WEFT_JOB_KEY WEFT_LAB WEFT_METRICS

lab=test-j-$$
box= ranks=
# shellcheck disable=SC2154
tap_at_exit 'kill -KILL $box $ranks 2>/dev/null; wait; "$WEFT_BIN" lab down "$lab" 2>/dev/null'
up() {
    "$WEFT_BIN" lab down "$lab" 2>/dev/null
    "$WEFT_BIN" lab up "$lab" "$@"
}
# job <folder> <ranks> <words of box_job>: begin it
job() {
    folder=$tap_tmp/$1 n=$2
    shift 2
    mkdir "$folder"
    "$WEFT_BIN" keygen "$folder/job.key" >/dev/null
    ranks=
    for r in $(seq 0 $((n - 1))); do
        "$WEFT_BIN" lab exec "$lab" "$r" -- "$WEFT_BOX_JOB" "$r" "$n" "$folder" "$@" "host=10.77.0.$((r + 1))" \
            >"$folder/out$r" 2>&1 &
        ranks="$ranks $!"
    done
}
# now <box|fallback> <n>: rank 0 has changed to it for the nth time
now() {
    lab_until 60 sh -c '[ "$(grep -c "^step [0-9]* $1\$" "$2")" -ge "$3" ] || grep -q ^failed "$2"' sh "$1" "$folder/out0" "$2" &&
        ! grep -q ^failed "$folder/out0"
}
# end: every rank's status
end() {
    touch "$folder/stop"
    for pid in $ranks; do
        wait "$pid" || { cat "$folder"/out*; return 1; }
    done
    ranks=
}
of() { sed -n "s/^end .*$1 \([0-9]*\).*/\1/p" "$folder/out${2:-0}"; }
# same <counter>: it is equal at all ranks, and not 0
same() { [ "$(for r in $(seq 0 $((n - 1))); do of "$1" "$r"; done | sort -u | wc -l)" = 1 ] && [ "$(of "$1")" -gt 0 ]; }

# ---- the box of a host process, on host 4
begin_box() {
    : >"$tap_tmp/box.out"
    "$WEFT_BIN" lab exec "$lab" 4 -- "$WEFT_BIN" aggregate --dense 10.77.0.5:7701 --members 4 --security none \
        --insecure-network --float32 --json >"$tap_tmp/box.out" 2>"$tap_tmp/box.err" &
    box=$!
    tap_until grep -q '^box: ' "$tap_tmp/box.out"
}
tap_run "a lab" up --hosts 5 --rate 200mbit --buffer 64kb --loss 0.01
begin_box
job process 4 1000,65536,200000 box=10.77.0.5:7701 float32=1 bytes_min=4000 silence_ms=400 retry_ms=400
tap_run "4 ranks use the box of a process" now box 1
kill -KILL $box
{ wait $box; } 2>/dev/null # without "Killed"
tap_run "it is killed: they sum themselves" now fallback 1
begin_box
tap_run "it is there again: they use it" now box 2
kill -STOP "$(pgrep -P $box)" # the child of `lab exec` is the box
tap_run "it is frozen: they sum themselves" now fallback 2
tap_run "every sum is right" end
tap_run "all ranks went through the box" same box
tap_run "and not" same fallbacks
tap_run "they tried it again" same retries
tap_run "and took it" same recoveries
kill -CONT "$(pgrep -P $box)"
kill -INT $box
wait $box
box=
tap_is "the box has summed" "$(($(sed 1d "$tap_tmp/box.out" | jq .packets.complete) > 0))" 1

# ---- the XDP box of the leaf
if [ "$("$WEFT_BIN" doctor --json | jq -r '.facts[] | select(.name == "xdp_aggregation").state')" != ok ]; then
    tap_skip "the XDP box" "no XDP here: weft doctor says why"
    tap_done
fi
at() { "$WEFT_BIN" lab box "$lab" "$@" >/dev/null; }
tap_run "a lab with a box" up --hosts 4 --rate 200mbit --buffer 64kb --loss 0.01 --aggregate xdp
job xdp 4 1000,65536,200000 box=10.77.255.254:7701 block_float=1 bytes_min=4000 silence_ms=400 retry_ms=400
tap_run "4 ranks use the XDP box" now box 1
at --job 2 --reset
tap_run "it has another job: they sum themselves" now fallback 1
at --job 1 --reset
tap_run "it is theirs again: they use it" now box 2
tap_run "every sum is right" end
tap_run "all ranks went through the box" same box
tap_run "they took it again" same recoveries
tap_is "the box has summed" "$(($("$WEFT_BIN" lab box "$lab" --json | jq '.[0].packets.complete') > 0))" 1
tap_done
