#!/bin/sh
# `weft train --lab`: servers and workers on the hosts of a lab with losses, over both transports;
# training reaches its target, uses the network, and leaves no process, however it ends. No time is
# asserted here.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
lab_or_skip
unset WEFT_JOB_KEY WEFT_LAB WEFT_DATA_DIR
lab=train-$$
tap_at_exit '"$WEFT_BIN" lab down $lab 2>/dev/null'

mark=$((1000000 + $$)) # --inject-seed of the jobs of this test, by which members() finds their processes
members() { ps -e -o args= | grep -c "^weft [sw].*--inject-seed=$mark\( \|\$\)"; }
no_member() { [ "$(members)" = 0 ]; }
all_four() { [ "$(members)" = 4 ]; }
machine() { # what a job could leave behind in the network of the machine itself
    ip -o link | sed 's/ mtu .*//'
    ip route show table all
    tc qdisc show
}
before=$(machine)

# train <name> <options...>: the report is $tap_tmp/<name>.json.
train() {
    name=$1
    shift
    tap_run "train $*" "$WEFT_BIN" train --lab $lab --workers 3 --servers 1 --inject-seed $mark \
        --report "$tap_tmp/$name.json" "$@"
}
# holds <what> <name> <jq condition>
holds() {
    if jq -e "$3" "$tap_tmp/$2.json" >"$tap_tmp/jq.out" 2>&1; then
        tap_pass "$2: $1"
    else
        tap_fail "$2: $1" "$3
$(jq -c 'del(.counters, .latency_us)' "$tap_tmp/$2.json" 2>&1)"
    fi
}
received() { # bytes that a host's interface has received
    "$WEFT_BIN" lab exec $lab "$1" -- cat /sys/class/net/eth0/statistics/rx_bytes
}

# ---- errors -------------------------------------------------------------------------------------
tap_run_fails "train fails if there is no such lab" 1 "$WEFT_BIN" train --lab $lab
tap_like "and names lab up" "$(cat "$tap_tmp/run.out")" "$lab.*weft lab up"
"$WEFT_BIN" lab up $lab --hosts 1 >/dev/null
tap_run_fails "train fails in a lab of one host" 1 "$WEFT_BIN" train --lab $lab --workers 3 --servers 1
tap_like "and names the number of hosts that it needs" "$(cat "$tap_tmp/run.out")" 'has only one host.*--hosts 4'
"$WEFT_BIN" lab down $lab >/dev/null
tap_run "lab up" "$WEFT_BIN" lab up $lab --hosts 4 --rate 200mbit --buffer 128kb --loss 0.01
cp "$WEFT_BIN" "$tap_tmp/weft"
chmod 755 "$tap_tmp" "$tap_tmp/weft"
if setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$tap_tmp/weft" 2>/dev/null; then
    tap_run_fails "train --lab fails without root" 1 setpriv --reuid 65534 --regid 65534 --clear-groups \
        env LD_LIBRARY_PATH="$(dirname "$WEFT_BIN")" "$tap_tmp/weft" train --lab $lab \
        --data "$WEFT_SOURCE_ROOT/data/adult/adult.data.zst"
    tap_like "and says that it needs root" "$(cat "$tap_tmp/run.out")" 'needs root'
else
    tap_skip "train --lab fails without root" "setpriv cannot run the program as another user here"
fi

# ---- training over the network ------------------------------------------------------------------
down_0=$(received 0)
down_3=$(received 3)
train weft --loss-bound 0.1
holds "the quality of a run without losses" weft '.test_auc >= 0.92 and (.test_auc - 0.923 | fabs) <= 0.003'
holds "values are missing, no more than the bound" weft \
    '.delivered_fraction < 1 and .delivered_fraction >= 0.9'
holds "the report describes the network" weft '
    .lab.hosts == 4 and .lab.loss == 0.01 and .lab.rate_bps == 200000000 and .lab.buffer == 131072 and
    .lab.topology == "star" and .transport == "weft" and .injected_drops == 0'
# 3 epochs of 32 steps, 3 workers, some 2,200 weights of 4 bytes a push.
tap_is "host 0, of the server, received the gradients" "$(($(received 0) - down_0 > 2000000))" 1
tap_is "host 3, of a worker, received the weights" "$(($(received 3) - down_3 > 500000))" 1
train whole --loss-bound 0 --until-loss 0.3 --check-steps 8 --epochs 9
train tcp --transport tcp --tcp-cc reno --tcp-rto-min 5 --security none --loss-bound 0.1 \
    --until-loss 0.3 --check-steps 8 --epochs 9
for name in whole tcp; do
    holds "every value is delivered, lost packets by retransmission" $name \
        '.delivered_fraction == 1 and .retransmitted_packets > 0 and .until.reached'
done
tap_is "TCP and weft without loss have equal test losses at equal steps" \
    "$(jq -c '[.until.checks[] | .step, (.test_logloss * 1e6 | round)]' "$tap_tmp/tcp.json")" \
    "$(jq -c '[.until.checks[] | .step, (.test_logloss * 1e6 | round)]' "$tap_tmp/whole.json")"

# ---- placement of processes ---------------------------------------------------------------------
# Of 7 processes on 4 hosts: servers on 0, 1, 2; workers on 3, 0, 1, 2.
tap_run "more processes than hosts" "$WEFT_BIN" train --lab $lab --servers 3 --workers 4 --epochs 1 \
    --security none
tap_like "servers are placed from host 0 on" "$(cat "$tap_tmp/run.out")" \
    '^shards: 10.77.0.1:[0-9]*,10.77.0.2:[0-9]*,10.77.0.3:[0-9]*$'

# ---- jobs that end early ------------------------------------------------------------------------
begin() { # starts an endless job in the background; $job is its process
    : >"$tap_tmp/out" # here: the background shell empties it only when it gets to run
    "$WEFT_BIN" train --lab $lab --workers 3 --servers 1 --inject-seed $mark --epochs 10000 \
        --report "$tap_tmp/cut.json" >"$tap_tmp/out" 2>"$tap_tmp/err" &
    job=$!
    lab_until 120 grep -q '^epoch 1/' "$tap_tmp/out"
}
begin
tap_run "a long job has four processes" all_four
hosts=$(ps -e -o pid= -o args= | grep "[0-9] weft [sw].*--inject-seed=$mark\( \|\$\)" | while read -r pid _; do
    nsenter -t "$pid" -u hostname 2>/dev/null
done | sort | tr '\n' ' ')
tap_is "each process is on a host of its own" "$hosts" "h0 h1 h2 h3 "
kill -INT $job
wait $job
tap_is "Ctrl-C: exit status 1" $? 1
tap_like "Ctrl-C: the error names the signal" "$(cat "$tap_tmp/err")" 'interrupted by signal 2'
tap_run "Ctrl-C: no process is left" lab_until 120 no_member
begin
kill -KILL $job
wait $job 2>/dev/null
tap_run "kill -9: no process is left" lab_until 120 no_member
begin
"$WEFT_BIN" lab down $lab >/dev/null || kill -KILL $job
wait $job
tap_is "the lab ends during a job: exit status 1" $? 1
tap_like "the lab ends during a job: the error names a process" "$(cat "$tap_tmp/err")" '\(server\|worker\) [0-2] (pid [0-9]*)'
tap_run "the lab ends during a job: no process is left" lab_until 120 no_member
tap_is "an interrupted job writes no report" "$(find "$tap_tmp" -name 'cut.json*')" ""

# ---- a comparison on a network of its own -------------------------------------------------------
tap_run "weft perf compare --train succeeds" "$WEFT_BIN" perf compare --train --workers 2 --epochs 1 --rate 200mbit \
    --loss 0.01 --background none --repetitions 1 --transports weft:0,tcp:reno:rto5:none \
    --out "$tap_tmp/results" --json -- --format adult
tap_run "its report has one run of each transport over its network" jq -e '.networks | length == 1 and .[0].loss == 0.01 and
    (.[0].cells | map(.runs[0].lab.loss) == [0.01, 0.01]) and all(.[0].cells[];
        .dnf == 0 and .delivered_fraction == 1 and .retransmitted_packets > 0)' "$tap_tmp/run.out"
tap_is "the machine's network is unchanged" "$(machine)" "$before"
tap_done
