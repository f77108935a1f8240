#!/bin/bash
# The aggregation boxes of a lab (`weft lab up --aggregate xdp`): sums are right, and what a box sends passes
# the rate, the buffer, the counters and the losses of its ports. Nothing is left behind. Needs root.
# WEFT_DENSE and WEFT_BLAST are the programs of tests/lab/dense.c and blast.c.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
lab_or_skip
if [ "$("$WEFT_BIN" doctor --json | jq -r '.facts[] | select(.name == "xdp_aggregation").state')" != ok ]; then
    tap_skip "boxes of a lab" "no XDP here: weft doctor says why"
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
# dense <n> <options>: n members on hosts 0 .. n-1; seen <name>: a number that they printed
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

# ---- sums, and no packet lost to the box
tap_run "a lab with a box comes up" up --hosts 4 --rate 100mbit
tap_like "it says where the box is" "$(cat "$tap_tmp/run.out")" "XDP, not authenticated): $box:7701 of the switch"
tap_is "status knows" "$("$WEFT_BIN" lab status "$lab" --json | jq -r '.[0].aggregate')" xdp
tap_is "the members are the hosts" "$(of '| "\(.leaf) \(.address) \(.port) \(.members)"')" "switch $box 7701 4"
before=$(port 0 htb packets)
tap_run "4 hosts, 64 slots, 20 rounds" dense 4 -s 64 -r 20
tap_is "every member has every sum, none is wrong, none was sent again" \
    "$(seen sums) $(seen wrong) $(seen direct) $(seen resent)" "5120 0 0 0"
tap_is "no packet was lost to the box" "$(of '.packets | .summed + .complete')" 5120
tap_is "and each round was complete once" "$(of .packets.complete)" 1280
tap_is "nothing was malformed, foreign, early or stale" \
    "$(of '.packets | .malformed + .foreign + .early + .stale + .epoch + .waiting + .result')" 0
tap_is "the sums passed the port's queue: its counter saw each" "$(($(port 0 htb packets) - before))" 1280

# ---- the rest of the traffic
"$WEFT_BIN" lab exec "$lab" 1 -- "$WEFT_BLAST" recv 100 >"$tap_tmp/recv" &
lab_until 120 grep -q ready "$tap_tmp/recv"
"$WEFT_BIN" lab exec "$lab" 0 -- "$WEFT_BLAST" send 10.77.0.2 100 marks
lab_until 120 grep -q packets "$tap_tmp/recv"
tap_like "other traffic passes" "$(cat "$tap_tmp/recv")" '^packets 100 '

# no_port <host>: datagrams to ports of that host that no process has
no_port() { "$WEFT_BIN" lab exec "$lab" "$1" -- awk '/^Udp: [0-9]/ { print $3 }' /proc/net/snmp; }
before=$(no_port 1)
# Less than the 5 s after which a packet is sent again.
timeout 3 "$WEFT_DENSE" run -s 8 -r 1 10.77.0.2 7701 "$(lab_netns "$lab" 0)" >/dev/null 2>&1
tap_is "also to the box's port of another host" "$(($(no_port 1) - before))" 8
tap_is "which the box does not count" "$(of '.packets | add')" 5120

# ---- epochs, jobs, exponents
tap_run_fails "the rounds of an epoch are not begun again" 124 timeout 3 "$WEFT_DENSE" run -r 1 "$box" 7701 \
    "$(lab_netns "$lab" 0)"
tap_run "another epoch, exponent, job and number of members" \
    "$WEFT_BIN" lab box "$lab" --epoch 7 --exponent -20 --job 3 --members 3 --reset
tap_like "are said" "$(cat "$tap_tmp/run.out")" "members 0 .. 2, job 3, epoch 7, exponent -20, 1024 slots"
tap_run "3 hosts send each packet twice" dense 3 -e 7 -x -20 -j 3 -2
tap_is "all sums are right" "$(seen sums) $(seen wrong) $(seen direct)" "960 0 0"
tap_is "each packet was added once" "$(of '.packets | .summed + .complete')" 960
tap_is "and its duplicate was seen" "$(of '.packets | .waiting + .result + .stale')" 960
dense 3 -e 8 -x -19 -j 3 -r 1
tap_is "a later epoch began with its first packet" "$(of .epoch)" 8
tap_is "with another exponent no sum is valid, and its members know" "$(seen sums) $(seen direct)" "96 96"
timeout 2 "$WEFT_DENSE" run -e 7 -x -20 -j 3 -s 1 -r 1 "$box" 7701 "$(lab_netns "$lab" 0)"
tap_is "a packet of an earlier one is dropped" "$(of '| "\(.epoch) \(.packets.epoch)"')" "8 1"
tap_run_fails "not other members in the same epoch" 2 "$WEFT_BIN" lab box "$lab" --members 2
tap_like "says what is needed" "$(cat "$tap_tmp/run.out")" '--epoch with a number above 8, or --reset'
tap_run_fails "nor with the epoch that it has" 2 "$WEFT_BIN" lab box "$lab" --members 2 --epoch 8
tap_run_fails "nor with an earlier one" 2 "$WEFT_BIN" lab box "$lab" --members 2 --epoch 7
tap_is "nothing has changed" "$(of '| "\(.members) \(.epoch)"')" "3 8"
tap_run "the same members" "$WEFT_BIN" lab box "$lab" --members 3
tap_run "others with a later epoch" "$WEFT_BIN" lab box "$lab" --members 2 --epoch 9
tap_run "others with a reset" "$WEFT_BIN" lab box "$lab" --members 3 --reset
dense 3 -e 9 -x -20 -j 3 -r 1
tap_is "have their sums" "$(seen sums) $(seen wrong) $(seen direct)" "96 0 0"
tap_run_fails "not more members than hosts" 2 "$WEFT_BIN" lab box "$lab" --members 5
tap_run_fails "not more slots than there are" 2 "$WEFT_BIN" lab box "$lab" --slots 1025

# ---- what leaves the box passes the queue
up --hosts 3 --rate 100mbit --downlink 0=10mbit --buffer 256kb >/dev/null
tap_run "a member behind 10 Mbit/s" dense 3 -s 64 -r 4
# 256 frames of 1482 bytes at 10 Mbit/s: 303 ms; without the queue 50 times as fast
tap_is "its sums come at its rate" "$([ "$(seen ms)" -ge 290 ] && echo yes || seen ms)" yes
tap_is "none is lost" "$(seen resent) $(port 0 bfifo drops)" "0 0"
up --hosts 3 --rate 100mbit --downlink 0=10mbit --buffer 16kb >/dev/null
tap_run "with a buffer of 16 KB, sums are right, too" dense 3 -s 64 -r 4 -t 100
tap_is "all of them" "$(seen sums) $(seen wrong)" "768 0"
tap_is "but the port dropped some" "$([ "$(port 0 bfifo drops)" -gt 20 ] && echo yes || port 0 bfifo drops)" yes
tap_is "which the box gave again" "$([ "$(of .packets.result)" -gt 20 ] && echo yes || of .packets.result)" yes
up --hosts 3 --rate 100mbit --loss 0.2 --ecn 60kb >/dev/null
tap_run "with --loss 0.2, beside --ecn" dense 3 -s 64 -r 4 -t 50
tap_is "all sums are right" "$(seen sums) $(seen wrong)" "768 0"
tap_is "packets to the box are not lost" "$(of '.packets | .summed + .complete')" 768
tap_is "its sums are" "$([ "$(of .packets.result)" -gt 50 ] && echo yes || of .packets.result)" yes

# ---- leaves
up --topology spine-leaf --leaves 2 --hosts 3 --rate 100mbit >/dev/null
tap_run "the hosts of leaf0" dense 3
first=3 address=10.77.255.253
tap_run "the hosts of leaf1 have a box of their own" dense 3
tap_is "with right sums" "$(seen sums) $(seen wrong)" "960 0"
first='' address=''
tap_is "each box added its own packets" "$(of '.packets | .summed + .complete') $(leaf=1 of '.packets | .summed + .complete')" "960 960"
# A box sums nothing of other leaves' hosts: their packets arrive at no port with a box.
timeout 5 "$WEFT_DENSE" run -r 1 10.77.255.253 7701 "$(lab_netns "$lab" 0)" >/dev/null 2>&1
tap_is "packets of other leaves do not reach it" "$(leaf=1 of '.packets | add')" 960

# ---- nothing is left
program=$(of .program)
tap_run "the kernel has the program" "$WEFT_DENSE" program "$program"
gone() { ! "$WEFT_DENSE" program "$1"; }
"$WEFT_BIN" lab down "$lab"
tap_run "down removes it" lab_until 60 gone "$program"
tap_run "a lab for its holder to die" up --hosts 2
program=$(of .program)
tap_run "has a program" "$WEFT_DENSE" program "$program"
kill -KILL "$(lab_fact "$lab" holder)"
tap_run "so does the death of the holder" lab_until 60 gone "$program"
tap_run_fails "then there is no box" 1 "$WEFT_BIN" lab box "$lab"

# ---- usage
up --hosts 2 >/dev/null
"$WEFT_BIN" lab down "$lab"
"$WEFT_BIN" lab up "$lab" --hosts 2 >/dev/null
tap_run_fails "a lab without boxes" 1 "$WEFT_BIN" lab box "$lab"
tap_like "says how to make one" "$(cat "$tap_tmp/run.out")" "create it with --aggregate xdp"
tap_run_fails "not with --offload" 2 "$WEFT_BIN" lab up "$lab-y" --aggregate xdp --offload
tap_run_fails "not for more hosts than a box has members" 2 "$WEFT_BIN" lab up "$lab-y" --hosts 65 --aggregate xdp
tap_done
