#!/bin/bash
# `weft aggregate --xdp`: options, sums between veth interfaces in generic and native mode, counters, and
# removal of the program when the process ends, also by SIGKILL. Most of it needs root.
# WEFT_DENSE is the program of tests/lab/dense.c.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"

weft=$WEFT_BIN
refused() { # refused <regular expression of the error> <options...>
    local sentence=$1
    shift
    tap_run_fails "rejects $*" 2 "$weft" aggregate "$@"
    tap_like "and the error says why" "$(cat "$tap_tmp/run.out")" "$sentence"
}
refused 'needs --security none: BPF has no AES-GCM' --xdp lo
refused 'needs --security none' --xdp lo --security auth
refused 'is not a list of interfaces' --xdp eth0, --security none
refused 'is not a list of interfaces' --xdp an-interface-name-too-long --security none
refused 'has lo twice' --xdp lo,lo --security none
refused 'each member needs one' --xdp lo --members 2 --security none
refused 'from -126 to 127' --xdp lo --exponent 128 --security none
refused 'unknown option --servers' --xdp lo --servers 127.0.0.1:7700 --security none
tap_run "--xdp --help succeeds" "$weft" aggregate --xdp lo --help
tap_like "the help says that packets are not authenticated" "$(cat "$tap_tmp/run.out")" 'Packets are not authenticated'
tap_like "the help of the process form names --xdp" "$("$weft" aggregate --help)" '^  --xdp IFACE'

lab_or_skip
if [ "$("$weft" doctor --json | jq -r '.facts[] | select(.name == "xdp_aggregation").state')" != ok ]; then
    tap_run_fails "--xdp fails without BPF" 1 "$weft" aggregate --xdp lo --security none --no-fallback
    tap_like "the error names weft doctor" "$(cat "$tap_tmp/run.out")" 'weft doctor'
    tap_skip "aggregation box on veth interfaces" "no XDP here: see weft doctor"
    tap_done
fi

# Networks: the box with p0, p1, p2; members 0 to 2 with w0 to w2 on the other ends.
pids=
cleanup() {
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill $pids 2>/dev/null
    wait
}
tap_at_exit cleanup
network() { # network <name of a variable>: the variable is set to the pid of a process in a new network namespace
    unshare -n sleep 1000 &
    pids="$pids $!"
    eval "$1=$!"
    tap_until different "$!"
}
different() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }
in_box() { nsenter -t "$box" -n "$@"; }
network box
in_box ip link set lo up
for i in 0 1 2; do
    network "m$i"
    pid=m$i
    in_box ip link add p$i type veth peer name w$i netns "${!pid}"
    in_box ip address add 10.9.$i.1/24 dev p$i
    in_box ip link set p$i up
    nsenter -t "${!pid}" -n ip address add 10.9.$i.2/24 dev w$i
    nsenter -t "${!pid}" -n ip link set w$i up
done
# shellcheck disable=SC2154
box0=10.9.0.1
nets="/proc/$m0/ns/net /proc/$m1/ns/net /proc/$m2/ns/net"
dense() { # three members, each with the box's address on its own network
    # shellcheck disable=SC2086
    "$WEFT_DENSE" run "$@" -m $box0,10.9.1.1,10.9.2.1 10.9.0.1 7701 $nets >"$tap_tmp/dense" 2>&1
    local status=$?
    echo "# dense $*: $(cat "$tap_tmp/dense")"
    return $status
}
seen() { sed -n "s/.*$1 \([0-9]*\).*/\1/p" "$tap_tmp/dense"; }
mac_of() { nsenter -t "$1" -n ip -j link show "$2" | jq -r '.[0].address'; }
# attached <interface>: its programs, as "XDP tc"; nothing if that cannot be read
attached() { in_box ip -j -d link show dev "$1" >"$tap_tmp/link" && echo "$(jq '[.[].xdp.prog.id | values] | length' "$tap_tmp/link") $(in_box "$WEFT_DENSE" tcx "$1")"; }
nothing() { [ "$(attached p0),$(attached p1),$(attached p2)" = "0 0,0 0,0 0" ]; }
start() { # start <options>: standard output to box.out, standard error to box.err
    : >"$tap_tmp/box.out"
    nsenter -t "$box" -n "$weft" aggregate --security none "$@" >"$tap_tmp/box.out" 2>"$tap_tmp/box.err" &
    pid=$!
    pids="$pids $pid"
    tap_until grep -q '^box: ' "$tap_tmp/box.out"
}
finish() { # finish <signal>: its exit status
    kill "-$1" "$pid"
    wait "$pid" 2>/dev/null
}

tap_run "a box starts in generic mode" start --xdp p0,p1,p2 --generic --epoch 4 --job 9 --json
tap_like "it prints its interfaces, members and settings" "$(head -n 1 "$tap_tmp/box.out")" \
    '^box: UDP port 7701 on p0,p1,p2 (generic mode, through queues), members 0 .. 2, job 9, epoch 4, exponent 0, 512 slots'
tap_is "its programs are attached to the interfaces" "$(attached p0) $(attached p1) $(attached p2)" "1 1 1 1 1 1"
tap_run "three members reduce" dense -e 4 -j 9 -r 20 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong) $(seen direct) $(seen foreign)" "1920 0 0 0"
tap_run_fails "a second box on an interface is rejected" 1 in_box "$weft" aggregate --xdp p0 --generic --security none
tap_like "the error says that another program is attached" "$(cat "$tap_tmp/run.out")" 'p0: another XDP program is attached'
finish INT
tap_is "Ctrl-C: exit status 0" "$?" 0
sed 1d "$tap_tmp/box.out" >"$tap_tmp/json"
tap_is "the report: each packet was added once" \
    "$(jq -r '"\(.mode) \(.packets.summed + .packets.complete) \(.packets.complete) \(.packets.malformed) \(.values)"' "$tap_tmp/json")" \
    "generic 1920 640 0 675840"
tap_is "the report: no member moved" "$(jq .members_moved "$tap_tmp/json")" 0
tap_run "no program is attached" nothing

# full <options>: the exit status of a box whose report cannot be written
full() {
    nsenter -t "$box" -n "$weft" aggregate --security none --xdp p0 --generic "$@" >/dev/full 2>"$tap_tmp/box.err" &
    pid=$!
    pids="$pids $pid"
    tap_until has_box p0
    finish TERM
}
has_box() { [ "$(attached "$1")" = "1 1" ]; }
if [ -w /dev/full ]; then
    tap_run_fails "a report as JSON that cannot be written: exit status 1" 1 full --json
    tap_like "and an error" "$(cat "$tap_tmp/box.err")" '^weft aggregate: standard output: No space left'
    tap_run_fails "a report as text that cannot be written: exit status 1" 1 full
    tap_like "and an error" "$(cat "$tap_tmp/box.err")" '^weft aggregate: cannot write the report'
else
    tap_skip "a report that cannot be written: exit status 1" "no /dev/full"
fi

start --xdp p0,p1,p2 --generic
finish KILL
tap_run "no program is attached after SIGKILL" lab_until 60 nothing
start --xdp p0,p1,p2 --generic
tap_run "the next box works" dense -r 3 -t 200
finish TERM
tap_like "the report as text has the packets and rounds" "$(cat "$tap_tmp/box.out")" '^packets added: 288; rounds complete: 96'

# The box follows the addresses of its host.
# shellcheck disable=SC2154
start --xdp p0,p1,p2 --generic
in_box ip address replace 10.9.0.77/24 dev p0
in_box ip link set p1 address 02:00:00:00:09:01
nsenter -t "$m1" -n ip neighbour flush dev w1
box0=10.9.0.77
tap_run "three members reduce after the host's IP and MAC addresses changed" dense -r 3 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong) $(seen foreign)" "288 0 0"
in_box ip address delete 10.9.0.77/24 dev p0
nsenter -t "$m0" -n ip route add 10.9.0.77/32 dev w0
nsenter -t "$m0" -n ip neighbour replace 10.9.0.77 lladdr "$(mac_of "$box" p0)" dev w0
not_own() { in_box awk '/^Ip: [0-9]/ { print $6 }' /proc/net/snmp; } # packets to addresses of others
passes() {
    timeout 1 "$WEFT_DENSE" run -r 4 -s 1 10.9.0.77 7701 "/proc/$m0/ns/net" >/dev/null 2>&1
    [ "$(not_own)" -gt "$before" ]
}
before=$(not_own)
tap_run "packets to an address that the host no longer has are not consumed" lab_until 5 passes
nsenter -t "$m0" -n ip route delete 10.9.0.77/32 dev w0
box0=10.9.0.1

# While the box cannot read the addresses, because it has no free descriptor, it keeps the old ones.
limits() { prlimit --pid "$pid" --nofile="$1"; } # limits <soft limit>: (the colon keeps the hard limit)
warnings() { grep -c 'cannot read the addresses of this host: .*; the box keeps the addresses' "$tap_tmp/box.err"; }
tap_run "the box has no free descriptor" limits 3:
tap_run "it warns that it cannot read the addresses" tap_until warnings
in_box ip address replace 10.9.0.78/24 dev p0
sleep 2.5 # it reads the addresses at least twice in this time
tap_is "it warns once" "$(warnings)" 1
tap_run "three members reduce meanwhile" dense -e 1 -r 3 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong) $(seen foreign)" "288 0 0"
limits 1024:
box0=10.9.0.78
tap_run "three members reduce at the new address" dense -e 2 -r 3 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong) $(seen foreign)" "288 0 0"
in_box ip address delete 10.9.0.78/24 dev p0
box0=10.9.0.1
finish TERM
tap_is "the box exits with 0" "$?" 0

tap_run "a box starts in native mode with --through-queues" start --xdp p0,p1,p2 --through-queues
tap_run "three members without programs on their interfaces reduce" dense -r 20 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong) $(seen direct) $(seen foreign)" "1920 0 0 0"
finish KILL
tap_run "no program is attached after SIGKILL" lab_until 60 nothing

is_generic() { [ "$(in_box ip -d link show | grep -c 'xdpgeneric')" = 3 ]; }
# On lo the box's own reply arrives at the box again. Its metadata shows that it is a reply.
start --xdp lo --members 1
tap_run "a member reduces over the loopback interface" timeout 20 "$WEFT_DENSE" run -2 -s 4 -r 4 127.0.0.1 7701 "/proc/$box/ns/net"
tap_like "it receives every sum" "$(cat "$tap_tmp/run.out")" '^sent 32 resent 0 sums 16 late [0-9]* wrong 0'
finish TERM

# A reply without metadata: a frame with the MAC address of p0 as its source and the TTL of such a reply.
start --xdp p0,p1,p2 --through-queues
mac=$(mac_of "$m0" w0)
nsenter -t "$m0" -n ip link set w0 address "$(mac_of "$box" p0)"
nsenter -t "$m0" -n ip neighbour replace 10.9.0.200 lladdr 02:00:00:00:09:99 dev w0
# From the box's address, and of type SUM (the second byte after the UDP header).
nsenter -t "$m0" -n nft 'table ip weft { chain out { type filter hook postrouting priority 0;
    ip ttl set 0; ip saddr set 10.9.0.1; @th,72,8 set 3; }; }'
timeout 2 "$WEFT_DENSE" run -p 7701 -s 1 -r 1 10.9.0.200 9 "/proc/$m0/ns/net" >/dev/null 2>&1
nsenter -t "$m0" -n nft delete table ip weft
nsenter -t "$m0" -n ip link set w0 address "$mac"
tap_run "a reply without metadata: the box warns" tap_until grep -q 'driver of an interface has no XDP metadata' "$tap_tmp/box.err"
tap_run "a reply without metadata: all interfaces change to generic mode" tap_until is_generic
tap_run "three members reduce" dense -r 3 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong) $(seen foreign)" "288 0 0"
finish TERM
tap_like "the report counts the reply without metadata" "$(cat "$tap_tmp/box.out")" '^replies to their sender alone, as a driver has no XDP metadata: 1;'

far_boxes() { # far_boxes <options>: a box on another UDP port at each far end
    far=
    for i in 0 1 2; do
        pid=m$i
        : >"$tap_tmp/far$i"
        nsenter -t "${!pid}" -n "$weft" aggregate --security none --xdp w$i --port 9 "$@" >"$tap_tmp/far$i" 2>&1 &
        pids="$pids $!"
        far="$far $!"
        tap_until grep -q '^box: ' "$tap_tmp/far$i"
    done
}
no_far_boxes() {
    # shellcheck disable=SC2086
    kill $far
    # shellcheck disable=SC2086
    wait $far
}

# Metadata stays with a packet on its way over a veth: a box must ignore the metadata of another one.
# The box replies to both packets of a member; the second reply goes to its sender only.
far_boxes --generic
start --xdp p0 --generic
"$WEFT_DENSE" run -2 -s 4 -r 4 10.9.0.1 7701 "/proc/$m0/ns/net" >"$tap_tmp/dense"
tap_like "a member behind a box of its own receives every reply" "$(cat "$tap_tmp/dense")" \
    '^sent 32 resent 0 sums 16 late [1-9][0-9]* wrong 0'
finish TERM
no_far_boxes

# Far ends of veth interfaces need a program in native mode.
far_boxes
tap_run "a box starts without a mode option" start --xdp p0,p1,p2
tap_like "it prints that it is in native mode" "$(cat "$tap_tmp/box.out")" '(native mode)'
tap_run "three members reduce in native mode" dense -r 20 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong) $(seen direct) $(seen foreign)" "1920 0 0 0"
# The members send from fixed ports, and between two rounds one packet with the rank of another member arrives.
dense -e 1 -s 1 -r 2 -p 5000
"$WEFT_DENSE" run -e 1 -s 1 -r 1 -n 1 -p 5001 10.9.0.1 7701 "/proc/$m0/ns/net" >/dev/null
tap_run "three members reduce after a packet with a wrong rank" dense -e 2 -s 4 -r 4 -p 5000 -t 60000
tap_is "each member receives its sums" "$(seen sums) $(seen wrong) $(seen resent) $(seen foreign)" "48 0 0 0"
finish TERM
tap_like "the report counts the packet with a wrong rank" "$(cat "$tap_tmp/box.out")" \
    '^members that moved within an epoch: 1 times; do two processes have one rank?'
tap_run "no program is attached" lab_until 60 nothing
no_far_boxes

tap_run "a box starts although an interface has no native mode" start --xdp p0,lo
tap_like "it warns that generic mode is used on all interfaces" "$(cat "$tap_tmp/box.err")" \
    'lo: XDP in this mode: .*; generic mode on all interfaces instead'
tap_is "all interfaces are in generic mode" "$(in_box ip -d link show | grep -c 'xdpgeneric')" 2
finish TERM
in_box ip link add q0 numtxqueues 1 numrxqueues 1 type veth peer name r0 numtxqueues 2 numrxqueues 2
in_box ip link set r0 up
in_box ip link set q0 up
tap_run "a box starts although an interface lacks queues for native mode" start --xdp q0
tap_like "it warns that generic mode is used" "$(cat "$tap_tmp/box.err")" \
    'q0: XDP in native mode: No space left on device; generic mode on all interfaces instead'
finish TERM
start --xdp q0,p0,p1,p2 --members 3 --generic
in_box ip link delete q0
sleep 2.5 # two checks of the interfaces
tap_run "three members reduce after another interface of the box was deleted" dense -r 3 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong)" "288 0"
finish TERM
tap_is "the box exits with 0" "$?" 0
tap_is "it printed no warning" "$(cat "$tap_tmp/box.err")" ""
tap_run_fails "a box fails if the interface does not exist" 1 in_box "$weft" aggregate --xdp p9 --security none
tap_like "the error names the interface" "$(cat "$tap_tmp/run.out")" 'no interface named p9'
tap_run_fails "a box fails if the second interface does not exist" 1 in_box "$weft" aggregate --xdp p0,p9 --security none
tap_run "no program is left on the first" lab_until 60 nothing
user="setpriv --reuid 65534 --regid 65534 --clear-groups"
# shellcheck disable=SC2086
tap_run_fails "a box fails without root and with --no-fallback" 1 in_box $user "$weft" aggregate --xdp p0 --security none --no-fallback
tap_like "the error says that it needs root" "$(cat "$tap_tmp/run.out")" 'needs root'

# Without permission or without BPF, the process itself sums the packets of the same interfaces.
# shellcheck disable=SC2086
start_as() { # start_as <prefix> <options>: as start
    local prefix=$1
    shift
    : >"$tap_tmp/box.out"
    nsenter -t "$box" -n $prefix "$weft" aggregate --security none "$@" >"$tap_tmp/box.out" 2>"$tap_tmp/box.err" &
    pid=$!
    pids="$pids $pid"
    tap_until grep -q '^box: ' "$tap_tmp/box.out"
}
tap_run "without root a box starts as a process" start_as "$user" --xdp p0,p1,p2 --job 9 --epoch 4 --json
tap_is "it prints one warning" "$(grep -c '^weft aggregate: .*needs root; this process sums' "$tap_tmp/box.err") $(wc -l <"$tap_tmp/box.err")" "1 1"
tap_run "three members reduce through the process" dense -e 4 -j 9 -r 3 -t 200
tap_is "they receive every sum" "$(seen sums) $(seen wrong) $(seen direct)" "288 0 0"
finish TERM
tap_is "the process exits with 0" "$?" 0
tap_is "the report: mode process" "$(sed 1d "$tap_tmp/box.out" | jq -r '"\(.mode) \(.members) \(.packets.complete)"')" "process 3 96"
tap_run "root without capabilities: a box starts as a process" start_as "setpriv --bounding-set -all --inh-caps -all" --xdp p0,p1 --members 3 --through-queues
# shellcheck disable=SC2086
timeout 2 "$WEFT_DENSE" run -s 1 -r 1 -t 200 -m $box0,10.9.1.1,10.9.2.1 10.9.0.1 7701 $nets >/dev/null 2>&1
finish TERM
tap_like "it adds no packets from other interfaces" "$(cat "$tap_tmp/box.out")" '^packets added: 2; rounds complete: 0'
tap_run_fails "without root a box fails if the interface does not exist" 1 in_box $user "$weft" aggregate --xdp p9 --security none
tap_like "the error names the interface" "$(cat "$tap_tmp/run.out")" 'no interface named p9'

# /metrics of the XDP box.
tap_run "an XDP box starts with --metrics" start --xdp p0,p1,p2 --generic --metrics 0
tap_run "three members again" dense -r 3 -t 200
url=$(sed -n 's/^metrics: //p' "$tap_tmp/box.out")
nsenter -t "$box" -n python3 -c 'import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), end="")' "$url" >"$tap_tmp/metrics"
tap_run "/metrics has the Prometheus format" python3 "$WEFT_SOURCE_ROOT/tests/cli/metrics_check.py" format "$tap_tmp/metrics"
tap_is "/metrics has packets, values, members and epoch" "$(grep -e 'complete"' -e 'summed"' -e ^weft_box_values -e '^weft_box_members ' -e ^weft_box_epoch \
    "$tap_tmp/metrics" | sed 's/.* //' | tr '\n' ' ')" "192 96 101376 3 0 "
top() { nsenter -t "$box" -n "$weft" top --once "${url#http://}" >"$tap_tmp/top" && grep -q ' box ' "$tap_tmp/top"; }
url=${url%/metrics}
tap_run "weft top shows the box" tap_until top
finish TERM
tap_is "the box exits with 0" "$?" 0
tap_done
