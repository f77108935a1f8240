#!/bin/bash
# The aggregation boxes of a lab (`weft lab up --aggregate xdp`): sums are right; packets that a box sends pass
# the rate limit, the buffer, the counters and the losses of its ports; no BPF program is left behind. Needs root.
# WEFT_DENSE and WEFT_BLAST are the programs of tests/lab/dense.c and blast.c.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
lab_or_skip
if [ "$("$WEFT_BIN" doctor --json | jq -r '.facts[] | select(.name == "xdp_aggregation").state')" != ok ]; then
    tap_skip "aggregation boxes of a lab" "no XDP here: see weft doctor"
    tap_done
fi

lab=test-x-$$
box=10.77.255.254
tap_at_exit '"$WEFT_BIN" lab down "$lab" 2>/dev/null'

up() {
    "$WEFT_BIN" lab down "$lab" 2>/dev/null
    "$WEFT_BIN" lab up "$lab" --aggregate xdp "$@"
}
# members <n> [first host]: the networks of hosts
members() {
    for h in $(seq "${2:-0}" $((${2:-0} + $1 - 1))); do lab_netns "$lab" "$h"; done
}
# dense <n> <options>: n members on hosts 0 .. n-1; seen <name>: a number of their output
dense() {
    local n=$1
    shift
    # shellcheck disable=SC2046
    "$WEFT_DENSE" run "$@" "${address:-$box}" 7701 $(members "$n" "${first:-0}") >"$tap_tmp/dense" 2>&1
    local status=$?
    echo "# dense $*: $(cat "$tap_tmp/dense")"
    return $status
}
seen() { sed -n "s/.*$1 \([0-9]*\).*/\1/p" "$tap_tmp/dense"; }
# of <jq path>: of the first box
of() { "$WEFT_BIN" lab box "$lab" --json | jq -r ".[${leaf:-0}]$1"; }
# port <host> <jq path>: of the token bucket of the port to that host
port() {
    "$WEFT_BIN" lab exec "$lab" "${node:-switch}" -- tc -s -j qdisc show dev "h$1" |
        jq -r ".[] | select(.kind == \"$2\") | .$3"
}

# ---- sums, and no loss on the way to the box
tap_run "lab up --aggregate xdp succeeds" up --hosts 4 --rate 100mbit
tap_like "lab up prints the address of the box" "$(cat "$tap_tmp/run.out")" "XDP, not authenticated): $box:7701 of the switch"
tap_is "status reports the box" "$("$WEFT_BIN" lab status "$lab" --json | jq -r '.[0].aggregate')" xdp
tap_is "the box's members are the hosts" "$(of '| "\(.leaf) \(.address) \(.port) \(.members)"')" "switch $box 7701 4"
before=$(port 0 htb packets)
tap_run "4 hosts reduce 64 slots in 20 rounds" dense 4 -s 64 -r 20
tap_is "every member receives every sum; none is wrong, no packet is resent" \
    "$(seen sums) $(seen wrong) $(seen direct) $(seen resent)" "5120 0 0 0"
tap_is "the box received every packet" "$(of '.packets | .summed + .complete')" 5120
tap_is "each round was completed once" "$(of .packets.complete)" 1280
tap_is "no packet was dropped, and none was a duplicate" \
    "$(of '.packets | .malformed + .foreign + .early + .stale + .epoch + .waiting + .result')" 0
tap_is "the port's HTB counted each sum" "$(($(port 0 htb packets) - before))" 1280

# ---- the rest of the traffic
"$WEFT_BIN" lab exec "$lab" 1 -- "$WEFT_BLAST" recv 100 >"$tap_tmp/recv" &
lab_until 120 grep -q ready "$tap_tmp/recv"
"$WEFT_BIN" lab exec "$lab" 0 -- "$WEFT_BLAST" send 10.77.0.2 100 marks
lab_until 120 grep -q packets "$tap_tmp/recv"
tap_like "other traffic passes the box" "$(cat "$tap_tmp/recv")" '^packets 100 '

# no_port <host>: datagrams to UDP ports of that host that no socket is bound to
no_port() { "$WEFT_BIN" lab exec "$lab" "$1" -- awk '/^Udp: [0-9]/ { print $3 }' /proc/net/snmp; }
before=$(no_port 1)
# Less than the retransmission timeout of 5 s.
timeout 3 "$WEFT_DENSE" run -s 8 -r 1 10.77.0.2 7701 "$(lab_netns "$lab" 0)" >/dev/null 2>&1
tap_is "packets to the box's port number of another host reach that host" "$(($(no_port 1) - before))" 8
tap_is "the box does not count them" "$(of '.packets | add')" 5120

# ---- epochs, jobs, exponents
tap_run_fails "a completed round of an epoch is not repeated" 124 timeout 3 "$WEFT_DENSE" run -r 1 "$box" 7701 \
    "$(lab_netns "$lab" 0)"
tap_run "lab box sets epoch, exponent, job and number of members" \
    "$WEFT_BIN" lab box "$lab" --epoch 7 --exponent -20 --job 3 --members 3 --reset
tap_like "lab box prints the new values" "$(cat "$tap_tmp/run.out")" "members 0 .. 2, job 3, epoch 7, exponent -20, 1024 slots"
tap_run "3 hosts reduce, and send each packet twice" dense 3 -e 7 -x -20 -j 3 -2
tap_is "all sums are right" "$(seen sums) $(seen wrong) $(seen direct)" "960 0 0"
tap_is "each packet was added once" "$(of '.packets | .summed + .complete')" 960
tap_is "each duplicate was counted" "$(of '.packets | .waiting + .result + .stale')" 960
dense 3 -e 8 -x -19 -j 3 -r 1
tap_is "the first packet of a later epoch begins it" "$(of .epoch)" 8
tap_is "with another exponent no sum is valid, and its flag says so" "$(seen sums) $(seen direct)" "96 96"
timeout 2 "$WEFT_DENSE" run -e 7 -x -20 -j 3 -s 1 -r 1 "$box" 7701 "$(lab_netns "$lab" 0)"
tap_is "a packet of an earlier epoch is dropped" "$(of '| "\(.epoch) \(.packets.epoch)"')" "8 1"
tap_run_fails "lab box does not change the members within an epoch" 2 "$WEFT_BIN" lab box "$lab" --members 2
tap_like "the error names --epoch and --reset" "$(cat "$tap_tmp/run.out")" '--epoch with a number above 8, or --reset'
tap_run_fails "nor with the current epoch" 2 "$WEFT_BIN" lab box "$lab" --members 2 --epoch 8
tap_run_fails "nor with an earlier epoch" 2 "$WEFT_BIN" lab box "$lab" --members 2 --epoch 7
tap_is "after these errors the box is unchanged" "$(of '| "\(.members) \(.epoch)"')" "3 8"
tap_run "lab box accepts the same number of members" "$WEFT_BIN" lab box "$lab" --members 3
tap_run "lab box changes the members with a later epoch" "$WEFT_BIN" lab box "$lab" --members 2 --epoch 9
tap_run "lab box changes the members with --reset" "$WEFT_BIN" lab box "$lab" --members 3 --reset
dense 3 -e 9 -x -20 -j 3 -r 1
tap_is "after --reset the members receive their sums" "$(seen sums) $(seen wrong) $(seen direct)" "96 0 0"
tap_run_fails "lab box rejects more members than hosts" 2 "$WEFT_BIN" lab box "$lab" --members 5
tap_run_fails "lab box rejects more slots than there are" 2 "$WEFT_BIN" lab box "$lab" --slots 1025

# ---- sums pass the queue of their port
up --hosts 3 --rate 100mbit --downlink 0=10mbit --buffer 256kb >/dev/null
tap_run "3 members reduce, one behind 10 Mbit/s" dense 3 -s 64 -r 4
# 256 frames of 1482 bytes at 10 Mbit/s: 303 ms; without the queue 50 times as fast
tap_is "its sums arrive at 10 Mbit/s" "$([ "$(seen ms)" -ge 290 ] && echo yes || seen ms)" yes
tap_is "no sum is lost" "$(seen resent) $(port 0 bfifo drops)" "0 0"
up --hosts 3 --rate 100mbit --downlink 0=10mbit --buffer 16kb >/dev/null
tap_run "3 members reduce with a buffer of 16 KB" dense 3 -s 64 -r 4 -t 100
tap_is "with a buffer of 16 KB every sum is right" "$(seen sums) $(seen wrong)" "768 0"
tap_is "the port dropped more than 20 sums" "$([ "$(port 0 bfifo drops)" -gt 20 ] && echo yes || port 0 bfifo drops)" yes
tap_is "the box resent more than 20 sums" "$([ "$(of .packets.result)" -gt 20 ] && echo yes || of .packets.result)" yes
up --hosts 3 --rate 100mbit --loss 0.2 --ecn 60kb >/dev/null
tap_run "3 members reduce with --loss 0.2 and --ecn" dense 3 -s 64 -r 4 -t 50
tap_is "with --loss 0.2 every sum is right" "$(seen sums) $(seen wrong)" "768 0"
tap_is "--loss drops no packet to the box" "$(of '.packets | .summed + .complete')" 768
tap_is "--loss drops sums: the box resent more than 50" "$([ "$(of .packets.result)" -gt 50 ] && echo yes || of .packets.result)" yes

# ---- leaves
up --topology spine-leaf --leaves 2 --hosts 3 --rate 100mbit >/dev/null
tap_run "the hosts of leaf0 reduce" dense 3
first=3 address=10.77.255.253
tap_run "the hosts of leaf1 reduce through their own box" dense 3
tap_is "their sums are right" "$(seen sums) $(seen wrong)" "960 0"
first='' address=''
tap_is "each box added its own packets" "$(of '.packets | .summed + .complete') $(leaf=1 of '.packets | .summed + .complete')" "960 960"
# A box does not sum packets from hosts of other leaves: they arrive at ports without a box.
timeout 5 "$WEFT_DENSE" run -r 1 10.77.255.253 7701 "$(lab_netns "$lab" 0)" >/dev/null 2>&1
tap_is "packets from other leaves do not reach the box" "$(leaf=1 of '.packets | add')" 960

# ---- removal
program=$(of .program)
tap_run "the kernel has the box's program" "$WEFT_DENSE" program "$program"
gone() { ! "$WEFT_DENSE" program "$1"; }
"$WEFT_BIN" lab down "$lab"
tap_run "lab down removes the program" lab_until 60 gone "$program"
tap_run "lab up --aggregate xdp succeeds again" up --hosts 2
program=$(of .program)
tap_run "the kernel has its program" "$WEFT_DENSE" program "$program"
kill -KILL "$(lab_fact "$lab" holder)"
tap_run "the death of the holder removes the program" lab_until 60 gone "$program"
tap_run_fails "then lab box fails" 1 "$WEFT_BIN" lab box "$lab"

# ---- usage
up --hosts 2 >/dev/null
"$WEFT_BIN" lab down "$lab"
"$WEFT_BIN" lab up "$lab" --hosts 2 >/dev/null
tap_run_fails "lab box fails in a lab without boxes" 1 "$WEFT_BIN" lab box "$lab"
tap_like "the error names --aggregate xdp" "$(cat "$tap_tmp/run.out")" "create it with --aggregate xdp"
tap_run_fails "--aggregate xdp is rejected with --offload" 2 "$WEFT_BIN" lab up "$lab-y" --aggregate xdp --offload
tap_run_fails "--aggregate xdp is rejected for more hosts than a box has members" 2 "$WEFT_BIN" lab up "$lab-y" --hosts 65 --aggregate xdp
tap_done
