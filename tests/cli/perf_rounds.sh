#!/bin/sh
# `weft perf pingpong, incast, outcast, alltoall, shuffle, compare` on loopback: every pattern over
# every transport delivers and reports all data; no performance is asserted.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_JOB_KEY WEFT_LAB

# Invariants of every report: times are ordered, and no round is shorter than its longest flow.
shape='
    (.round_ms | .mean > 0 and .p50 <= .p90 and .p90 <= .p99 and .p99 <= .max and .mean <= .max) and
    (.flow_ms | .p50 <= .p90 and .p90 <= .p99 and .p99 <= .max) and
    .flow_ms.max <= .round_ms.max + 1e-9 and .goodput_gbps > 0 and .cpu_s > 0 and
    .ideal_ms == null and .loss == null and .buffer == null and (.dnf | not) and
    (.interrupted | not) and (.retransmitted_packets | type) == "number"'

for transport in weft tcp tcp-raw; do
    security=auth
    [ $transport != tcp-raw ] || security=none
    for pattern in pingpong incast outcast alltoall shuffle; do
        case $pattern in
        pingpong) size="--bytes 40 --rounds 150" rounds=150 ;;
        shuffle) size="--bytes 30000 --senders 3 --receivers 2 --parallel 1 --rounds 4" rounds=4 ;;
        outcast) size="--bytes 50000 --receivers 3 --rounds 5" rounds=5 ;;
        *) size="--bytes 50000 --senders 3 --rounds 5" rounds=5 ;;
        esac
        # shellcheck disable=SC2086
        tap_run "$pattern over $transport" "$WEFT_BIN" perf $pattern --transport $transport $size \
            --warmup 2 --gap 0 --json
        cp "$tap_tmp/run.out" "$tap_tmp/json"
        tap_run "the report has its options, and everything is delivered" jq -e --arg pattern $pattern --arg transport $transport \
            --arg security $security --argjson rounds $rounds "
            .pattern == \$pattern and .transport == \$transport and .security == \$security and
            .rounds == \$rounds and .rounds_asked == \$rounds and .bound == 0 and
            .delivered_fraction.mean == 1 and .delivered_fraction.min == 1 and $shape" \
            "$tap_tmp/json"
    done
done

# The file of --per-round: 5 rounds of 3 messages of 50,000 bytes.
tap_run "incast --per-round succeeds" "$WEFT_BIN" perf incast --bytes 50000 --senders 3 --rounds 5 \
    --json --per-round "$tap_tmp/rounds"
cp "$tap_tmp/run.out" "$tap_tmp/json"
tap_is "the file has a line for each round with the times of all flows" \
    "$(awk '!/^#/ && NF == 7 { n++ } END { print n }' "$tap_tmp/rounds")" 5
tap_is "a round lasts as long as its longest flow" \
    "$(awk '!/^#/ { m = $4; for (i = 5; i <= 6; i++) if ($i > m) m = $i; bad += m != $2 }
        END { print bad + 0 }' "$tap_tmp/rounds")" 0
tap_is "a round begins after the end of the previous one" \
    "$(awk '!/^#/ { bad += $7 < end; end = $7 + $2 * 1e6 } END { print bad + 0 }' "$tap_tmp/rounds")" 0
mean=$(awk '!/^#/ { s += $2 } END { printf "%.5f", s / 5 }' "$tap_tmp/rounds")
tap_run "mean and goodput are computed from these rounds" jq -e --argjson mean "$mean" '
    (.round_ms.mean - $mean | fabs) < 1e-4 and
    (.goodput_gbps * .round_ms.mean * 5e6 / (8 * 5 * 3 * 50000) - 1 | fabs) < 1e-6' "$tap_tmp/json"

tap_run "incast --trace succeeds" "$WEFT_BIN" perf incast --bytes 50000 --senders 2 --rounds 2 \
    --trace "$tap_tmp/trace"
for n in 0 1 2; do
    tap_run "the trace of participant $n is read" "$WEFT_BIN" trace summary "$tap_tmp/trace.participant-$n"
done
tap_run_fails "--trace over TCP is rejected" 2 "$WEFT_BIN" perf incast --transport tcp --trace "$tap_tmp/trace"

if chrt -f 1 true 2>/dev/null; then
    tap_run "incast --realtime succeeds" "$WEFT_BIN" perf incast --bytes 50000 --senders 2 --rounds 2 \
        --realtime --json
    tap_run "the report says so" jq -e '.realtime and (.awake | type == "boolean")' \
        "$tap_tmp/run.out"
else
    tap_skip "incast --realtime succeeds" "needs root"
fi

tap_run "incast of 101 rounds succeeds" "$WEFT_BIN" perf incast --bytes 4000 --senders 1 --rounds 101 --gap 0 --json \
    --per-round "$tap_tmp/rounds"
cp "$tap_tmp/run.out" "$tap_tmp/json"
ranks=$(grep -v '^#' "$tap_tmp/rounds" | cut -d ' ' -f 2 | sort -n |
    awk '{ t[NR] = $1 } END { printf "[%s,%s,%s,%s]", t[51], t[91], t[100], t[101] }')
tap_run "percentiles are nearest ranks" jq -e --argjson ranks "$ranks" '
    [.round_ms | .p50, .p90, .p99, .max] == $ranks' "$tap_tmp/json"

# Loopback has no loss, so a bound only changes what may be missing.
tap_run "incast with a bound and a deadline succeeds" "$WEFT_BIN" perf incast --bytes 50000 --senders 2 --rounds 3 \
    --bound 0.1 --deadline 50000 --json
tap_run "the report has both" jq -e '.bound == 0.1 and .deadline_ms == 50000 and
    .delivered_fraction.min >= 0.9' "$tap_tmp/run.out"
for security in none seal; do
    tap_run "weft with --security $security" "$WEFT_BIN" perf incast --security $security --senders 2 \
        --rounds 2 --bytes 20000
done
tap_run "incast --drop-at-sender succeeds" "$WEFT_BIN" perf incast --transport tcp-raw --drop-at-sender 0.25 \
    --bytes 140800 --senders 2 --rounds 3 --json
tap_run "it drops as many chunks as the option says" jq -e '
    .delivered_fraction.mean == 0.75 and .delivered_fraction.min == 0.75 and .cc != "none" and
    (.goodput_gbps * .round_ms.mean * 3e6 / (8 * 3 * 2 * 0.75 * 140800) - 1 | fabs) < 1e-6' \
    "$tap_tmp/run.out"
raw() { # datagrams that arrive after the receiver's timeout count as lost
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$WEFT_BIN" perf incast --transport udp-raw --bytes 20000 --senders 2 --rounds 3 --json \
            >"$tap_tmp/raw" || return
        ! jq -e '.delivered_fraction.mean > 0.9' "$tap_tmp/raw" >/dev/null || return 0
    done
    return 1
}
tap_run "plain UDP delivers more than 90 % of messages that fit the socket's buffer" raw
tap_run "incast without --json succeeds" "$WEFT_BIN" perf incast --senders 2 --rounds 2 --bytes 20000
tap_like "the table has the figures" "$(cat "$tap_tmp/run.out")" '^round  *[0-9.]* '
tap_run "incast --tcp-cc reno succeeds" "$WEFT_BIN" perf incast --transport tcp-raw --tcp-cc reno --senders 1 \
    --rounds 2 --bytes 4000 --json
tap_run "the report says reno" jq -e '.cc == "reno"' "$tap_tmp/run.out"

# ---- invalid options ----------------------------------------------------------------------------

# refuses <expected message> <options...>
refuses() {
    words=$1
    shift
    tap_run_fails "rejects $*" 2 "$WEFT_BIN" perf "$@"
    tap_like "the error says why" "$(cat "$tap_tmp/run.out")" "$words"
}
refuses 'multiple of 4' incast --bytes 1001
refuses 'tcp-raw has neither' incast --transport tcp-raw --bound 0.1
refuses 'requires --transport tcp-raw' incast --drop-at-sender 0.1
refuses 'require --transport tcp or' incast --tcp-cc reno
refuses 'kernel.s TCP has' incast --transport tcp --cc delay
refuses 'has no security' incast --transport udp-raw --security seal
refuses 'requires at least two' alltoall --senders 1
refuses 'too many' alltoall --senders 200
refuses 'outcast has one sender; --receivers R' outcast --senders 3
refuses 'outcast has one sender; --receivers R' outcast --senders=3
refuses 'more than 4 GB' incast --senders 256 --bytes 100000000
refuses 'hosts requires --lab' incast --hosts 0,1
refuses 'weft, tcp, tcp-raw or udp-raw' incast --transport sctp
refuses 'unknown option --receivers' incast --receivers 3
refuses 'it must be' compare --transports weft:0.1:cubic
refuses 'not a fraction' compare --loss 0,much
refuses '"8.5" is not a whole number' compare --senders 4,8.5
refuses '"1e5" is not a whole number' compare --bytes 1e5
refuses 'multiple of 4' compare --bytes 1000,1001
refuses 'number from 2 to' compare --pattern alltoall --senders 1
refuses 'the path is too long' compare --out "$(printf '%0900d' 0)"
tap_run_fails "compare in a lab that does not exist: exit status 1" 1 "$WEFT_BIN" perf compare --lab no-such-lab
tap_is "one error says so" "$(grep -c 'no lab named "no-such-lab"' "$tap_tmp/run.out")" 1
tap_run_fails "incast in a lab that does not exist: exit status 1" 1 "$WEFT_BIN" perf incast --lab no-such-lab
tap_like "the error names the lab" "$(cat "$tap_tmp/run.out")" 'no-such-lab'
tap_run_fails "an unknown congestion control: exit status 1" 1 "$WEFT_BIN" perf incast --senders 1 \
    --transport tcp-raw --tcp-cc nonesuch
tap_like "the error names it" "$(cat "$tap_tmp/run.out")" 'nonesuch'

# ---- the end ------------------------------------------------------------------------------------

children() {
    cat "/proc/$1/task/$1/children" 2>/dev/null
}
# start <options...>: starts an endless incast; $perf is its process, its children are the watchdog
# and four participants.
start() {
    "$WEFT_BIN" perf incast --senders 3 --bytes 20000 --rounds 1000000 "$@" \
        >"$tap_tmp/out" 2>"$tap_tmp/err" &
    perf=$!
    tries=0
    # shellcheck disable=SC2046
    until [ "$(children $perf | wc -w)" = 5 ] || [ $tries = 2400 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    processes=$(children $perf)
    sleep "${run_s:-0.5}"
}
no_process() {
    for pid in $processes; do
        ! kill -0 "$pid" 2>/dev/null || return 1
    done
}

for run_s in 0.5 2 8 32; do # until a round is complete
    start --json
    kill -TERM $perf
    wait $perf
    status=$?
    ! jq -e '.rounds > 0' "$tap_tmp/out" >/dev/null || break
done
run_s=
tap_is "SIGTERM: exit status 1" $status 1
tap_run "SIGTERM: the report has the rounds until then" jq -e '.interrupted and .rounds > 0 and
    .rounds < 1000000 and .round_ms.mean > 0' "$tap_tmp/out"
tap_run "SIGTERM: no process is left" tap_until no_process

for transport in weft tcp-raw; do
    start --transport $transport
    # shellcheck disable=SC2086
    set -- $processes
    kill -KILL "$4"
    wait $perf
    tap_is "a participant over $transport is killed: exit status 1" $? 1
    tap_like "the error names the participant" "$(cat "$tap_tmp/err")" 'sender 2 was killed by signal 9'
    tap_is "no report is printed" "$(cat "$tap_tmp/out")" ""
    tap_run "no process is left" tap_until no_process
done

start
kill -KILL $perf
wait $perf 2>/dev/null
tap_run "the parent process is killed: no process is left" tap_until no_process

# ---- busy processes -----------------------------------------------------------------------------

# busy_of <pid>: its computing children, each with its processor ticks.
busy_of() {
    for pid in $(children "$1"); do
        read -r stat <"/proc/$pid/stat" || continue
        case $stat in
        *' (weft-busy) '*) echo "$stat" | sed 's/.*(weft-busy)/weft-busy/' | cut -d ' ' -f 1,13 ;;
        esac
    done 2>/dev/null
}
two_compute() { [ "$(busy_of $perf | awk '$2 > 0 { n++ } END { print n + 0 }')" = 2 ]; }
# start_busy <pattern and options> <rounds>: like start; the children of $perf compute.
start_busy() {
    # shellcheck disable=SC2086
    "$WEFT_BIN" perf $1 --senders 2 --bytes 20000 --rounds $2 --busy 2 >"$tap_tmp/out" 2>"$tap_tmp/err" &
    perf=$!
    tap_run "two busy processes run: $1" tap_until two_compute
    processes=$(children $perf)
}
for pattern in incast "compare --loopback --transports tcp-raw:reno"; do
    for signal in TERM KILL; do
        start_busy "$pattern" 100000
        kill -$signal $perf
        wait $perf 2>/dev/null
        tap_run "SIG$signal: no process is left" tap_until no_process
    done
done
start_busy incast 100000
busy=$(for pid in $processes; do grep -lx weft-busy "/proc/$pid/comm"; done | head -n 1 | cut -d / -f 3)
kill -KILL "$busy"
# On a busy machine the process may need a while to exit; its parent has not waited for it yet.
is_dead() { grep -qs '^State:[[:space:]]*Z' "/proc/$busy/status" || [ ! -e "/proc/$busy" ]; }
tap_run "a busy process is killed" tap_until is_dead
kill -TERM $perf
wait $perf
tap_is "a busy process is killed: exit status 1, no report" "$?, $(cat "$tap_tmp/out")" "1, "
tap_like "the error says so" "$(cat "$tap_tmp/err")" 'busy process [01] was killed by signal 9'

busy() { # <options...>
    tap_run "compare $*" "$WEFT_BIN" perf compare --loopback --senders 2 --bytes 20000 --rounds 4 \
        --repetitions 1 --transports weft:0,tcp-raw:reno --out "$tap_tmp/busy" "$@"
}
busy
busy --busy 2
tap_like "the table names the busy processes" "$(cat "$tap_tmp/run.out")" '^incast .* loopback, 2 busy processes:'
for network in incast-2x20000-loopback incast-2x20000-loopback-busy2; do
    tap_is "results of $network are in their own directory" "$(find "$tap_tmp/busy/$network" -name '*.1.json' | wc -l)" 2
done
cp "$tap_tmp/busy/compare.json" "$tap_tmp/json"
tap_run "the report and each run have the number of busy processes" jq -e '.networks[0] | .busy == 2 and
    ([.cells[].runs[].busy] == [2, 2])' "$tap_tmp/json"
other=$tap_tmp/busy/incast-2x20000-loopback-busy2/weft_0.1.json
jq '.busy = 1 | .is_old = true' "$other" >"$tap_tmp/old"
cp "$tap_tmp/old" "$other"
busy --busy 2
tap_is "a result with another number of busy processes is measured again" "$(jq -c '[.busy, .is_old]' "$other")" "[2,null]"
busy
cp "$tap_tmp/busy/compare.json" "$tap_tmp/json"
tap_run "the default is no busy process" jq -e '.networks[0] | .busy == 0 and ([.cells[].runs[].busy] == [0, 0])' \
    "$tap_tmp/json"

# ---- compare ------------------------------------------------------------------------------------

compare() {
    tap_run "$1" "$WEFT_BIN" perf compare --loopback --senders 2 --bytes 20000,40000 --rounds 4 \
        --repetitions 3 --transports weft:0.1,tcp-raw:reno --out "$tap_tmp/results" --json
    cp "$tap_tmp/run.out" "$tap_tmp/json"
}
compare "weft perf compare succeeds"
tap_run "its report has medians of the runs" jq -e '
    .repetitions == 3 and .rounds == 4 and (.networks | length) == 2 and
    ([.networks[].bytes] == [20000, 40000]) and
    all(.networks[]; [.cells[].name] == ["weft:0.1", "tcp-raw:reno"] and
        .best_tcp == "tcp-raw:reno" and
        all(.cells[]; .repetitions == 3 and .dnf == 0 and (.runs | length) == 3 and
            .round_ms.p99 == ([.runs[].round_ms.p99] | sort | .[1]) and
            .round_ms.mean == ([.runs[].round_ms.mean] | sort | .[1])))' "$tap_tmp/json"
rm "$tap_tmp"/results/*40000*/tcp-raw_reno.2.json
touch -d '2001-01-01' "$tap_tmp"/results/*/*.json
compare "weft perf compare succeeds again"
tap_is "only the missing run is repeated" \
    "$(find "$tap_tmp/results" -name '*.[123].json' -newermt 2002-01-01 | wc -l)" 1
if command -v gnuplot >/dev/null; then
    tap_run "--plot succeeds" "$WEFT_BIN" perf compare --loopback --senders 2 --bytes 20000,40000 \
        --rounds 4 --repetitions 3 --transports weft:0.1,tcp-raw:reno --out "$tap_tmp/results" \
        --plot "$tap_tmp/plots"
    tap_is "it writes two pictures for each network" "$(find "$tap_tmp/plots" -name '*.png' -size +2k | wc -l)" 4
else
    tap_skip "--plot succeeds" "gnuplot is not installed"
fi
tap_run "compare with another --security succeeds" "$WEFT_BIN" perf compare --loopback --senders 2 --bytes 20000,40000 \
    --rounds 4 --repetitions 3 --transports weft:0.1,tcp-raw:reno --out "$tap_tmp/results" \
    --security none --json
tap_run "weft's runs are repeated" jq -e '
    [.networks[].cells[].runs[].security] | length == 12 and all(. == "none")' "$tap_tmp/run.out"
tap_is "TCP's runs are not repeated" "$(find "$tap_tmp/results" -name '*.[123].json' -newermt 2002-01-01 | wc -l)" 7
for pattern in outcast alltoall; do
    tap_run "compare --pattern $pattern succeeds" "$WEFT_BIN" perf compare --loopback --pattern $pattern \
        --senders 2 --bytes 20000 --rounds 4 --repetitions 1 --transports weft:0,tcp-raw:reno \
        --out "$tap_tmp/results" --json
    cp "$tap_tmp/run.out" "$tap_tmp/json"
    participants=senders
    [ $pattern != outcast ] || participants=receivers
    tap_run "each transport has a run of two $participants" jq -e --arg pattern $pattern --arg two $participants '
        .pattern == $pattern and
        ([.networks[].cells[].runs[] | [.pattern, .[$two]]] == [[$pattern, 2], [$pattern, 2]])' "$tap_tmp/json"
done
mkdir "$tap_tmp/results/incast-2x20000-loopback/tcp-raw_reno.4.json.new" # the path of its result
tap_run_fails "a result that cannot be written: exit status 1" 1 "$WEFT_BIN" perf compare --loopback --senders 2 \
    --bytes 20000 --rounds 4 --repetitions 4 --transports tcp-raw:reno --out "$tap_tmp/results"
tap_like "the table says that one run is missing" "$(cat "$tap_tmp/run.out")" '^tcp-raw:reno .*  1 of 4 missing$'
mkdir "$tap_tmp/empty"
PATH=$tap_tmp/empty tap_run_fails "without gnuplot: exit status 1" 1 "$WEFT_BIN" perf compare --loopback \
    --senders 2 --bytes 20000,40000 --rounds 4 --repetitions 3 --transports weft:0.1,tcp-raw:reno \
    --out "$tap_tmp/results" --plot "$tap_tmp/plots" --security none
tap_like "the error names the package" "$(cat "$tap_tmp/run.out")" 'gnuplot-nox'
tap_done
