#!/bin/bash
# `weft lab background`: the requested load is offered and reached, every flow is accounted for, equal
# seeds give equal traffic, and no process remains when the lab ends.
# Needs root: makes labs.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
# shellcheck source=tests/lab/judge.sh
. "$WEFT_SOURCE_ROOT/tests/lab/judge.sh"

lab=bg-$$
tap_at_exit '"$WEFT_BIN" lab down "$lab" 2>/dev/null'

if ! "$WEFT_BIN" lab up "$lab" --hosts 4 --rate 200mbit >"$tap_tmp/up" 2>&1; then
    tap_skip "background traffic" "no lab here: $(head -n 1 "$tap_tmp/up")"
    tap_done
fi

printf '# BYTES PROBABILITY\n20000 0\n400000 1\n' >"$tap_tmp/sizes"

# background <options...>: the report is in $tap_tmp/json; query <jq expression> queries it. It ends
# as soon as no flow is in progress. Some 100 flows arrive per second; up to 2000 may queue while
# the machine is suspended.
background() {
    "$WEFT_BIN" lab background "$lab" --sizes "$tap_tmp/sizes" --drain 120 \
        --json "$@" >"$tap_tmp/json" \
        2>"$tap_tmp/err" || sed 's/^/# /' "$tap_tmp/err"
    jq -r '"# offered \(.offered_load), achieved \(.achieved_load), \(.offered.flows) flows, " +
        "\(.completion_ms.all.flows) done, p99 \(.completion_ms.all.p99) ms"' "$tap_tmp/json"
}
query() {
    jq -r "$1" "$tap_tmp/json"
}
# Bytes sent by the interfaces of the hosts.
on_the_wire() {
    for host in 0 1 2 3; do
        "$WEFT_BIN" lab exec "$lab" "$host" -- sed -n 's/.*eth0: *//p' /proc/net/dev
    done | awk '{ sum += $9 } END { printf "%.0f\n", sum }'
}

reached() {
    local before
    before=$(on_the_wire)
    background --load 0.2 --seconds 3
    seen=$(query "\"offered \(.offered_load), achieved \(.achieved_load), on the wire \" +
        \"\($(($(on_the_wire) - before)) / .offered.bytes) of the bytes\"")
    [ "$(query "(.achieved_load > 0.9 * .offered_load) and
        ($(($(on_the_wire) - before)) / .offered.bytes | . > 1.02 and . < 1.3)")" = true ]
}
judge "over 90 % of the offered load is delivered; the interfaces sent 2 to 30 % more, for headers" reached
tap_is "the offered load is 0.2, within 10 %" \
    "$(query '.offered_load > 0.18 and .offered_load < 0.22')" true
tap_is "no flow was refused, failed or unfinished" \
    "$(query '[.refused.flows, .failed_flows, .unfinished_flows, .offered.flows - .completion_ms.all.flows] | tostring')" \
    "[0,0,0,0]"
first=$(query '.offered | tostring')
background --load 0.2 --seconds 3
tap_is "equal seeds offer equal traffic" "$(query '.offered | tostring')" "$first"
background --load 0.2 --seconds 3 --seed 2
tap_is "another seed offers different traffic" "$(query ".offered | tostring != \"$(echo "$first" | sed 's/"/\\"/g')\"")" \
    true

background --load 2 --seconds 1 --drain 0 --flows-max 10
tap_is "at a load of 2 flows are refused, and every flow is accounted for" \
    "$(query '(.refused.flows > 0) and (.under_way_max == 10) and (.offered.flows ==
        .completion_ms.all.flows + .refused.flows + .failed_flows + .unfinished_flows)')" true

if [ -w /dev/full ]; then
    "$WEFT_BIN" lab background "$lab" --sizes "$tap_tmp/sizes" --load 0.1 --seconds 1 >/dev/full 2>"$tap_tmp/err"
    tap_is "a report that cannot be written: exit status 1, and an error" "$? $(cat "$tap_tmp/err")" \
        "1 weft lab background: standard output: No space left on device"
else
    tap_skip "a report that cannot be written: exit status 1, and an error" "no /dev/full"
fi

background --load 0.1 --seconds 1 --cc dctcp
if grep -q 'no BPF' "$tap_tmp/err"; then
    tap_skip "dctcp" "this build has no BPF"
else
    tap_is "dctcp: flows complete" \
        "$(query '(.completion_ms.all.flows == .offered.flows) and .cc == "dctcp"')" true
fi

# It runs until SIGTERM, or until its lab ends. Both are tested after the first megabyte was sent.
wire=$(on_the_wire)
carried() { [ "$(($(on_the_wire) - wire))" -gt "$1" ]; }
"$WEFT_BIN" lab background "$lab" --sizes hadoop --load 0.1 >"$tap_tmp/out" 2>"$tap_tmp/err" &
pid=$!
lab_until 120 carried 1000000
kill -TERM $pid
wait $pid
tap_is "SIGTERM: exit status 0 and a report" "$? $(grep -c '^load: offered' "$tap_tmp/out")" "0 1"
wire=$(on_the_wire)
"$WEFT_BIN" lab background "$lab" --sizes hadoop --load 0.1 >"$tap_tmp/out" 2>"$tap_tmp/err" &
pid=$!
lab_until 120 carried 1000000
"$WEFT_BIN" lab down "$lab" || kill -KILL $pid
wait $pid
tap_is "the lab ends: exit status 1 and an error that says so" "$? $(grep -c 'has the lab ended' "$tap_tmp/err")" "1 1"

# As part of a lab: lab up --background.
tap_run "lab up with --background succeeds" \
    "$WEFT_BIN" lab up "$lab" --hosts 4 --rate 200mbit --background "$tap_tmp/sizes:0.1"
wire=0
tap_run "its hosts send background traffic" lab_until 120 carried 5000000
"$WEFT_BIN" lab down "$lab"
tap_like "lab up names an unknown distribution of flow sizes" \
    "$("$WEFT_BIN" lab up "$lab" --background websurch:0.1 2>&1)" "no flow sizes named websurch"
tap_done
