#!/bin/sh
# `weft aggregate --dense`: the aggregation box as a process: sums of two members, /metrics, counters,
# Ctrl-C, usage errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_JOB_KEY WEFT_METRICS

# begin <options>: starts a box; sets $box, its pid, and $port
begin() {
    rm -f box.out
    "$WEFT_BIN" aggregate --dense 127.0.0.1:0 --security none --members 2 "$@" >box.out 2>box.err &
    box=$!
    tap_until grep -q '^box: ' box.out
    port=$(sed -n 's/^box: 127.0.0.1:\([0-9]*\),.*/\1/p' box.out)
}
end() { # end <signal>: its exit status
    kill "-$1" "$box"
    wait "$box"
}
tap_at_exit 'kill $box 2>/dev/null; wait'

# members.py <port> <epoch> <exponent> <rounds>: two members with 8 values in slot 3. Each packet is
# sent twice; every sum has to arrive at both.
cat >members.py <<'PY'
import socket, struct, sys
port, epoch, exponent, rounds = map(int, sys.argv[1:])
HEAD = ">BBBbHHIIIIHHI"
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
sums, direct = [0, 0], 0
for number in range(rounds):
    for member, s in enumerate(sockets):
        values = [(member + 1) * (number - i) for i in range(8)]
        packet = struct.pack(HEAD, 2 << 4 | 13, 1, 0, exponent, 9, member, 3, epoch, number, 0, 8, 0, 0)
        for _ in range(2):
            s.sendto(packet + struct.pack("<8i", *values), ("127.0.0.1", port))
    for member, s in enumerate(sockets):
        s.settimeout(60)
        while True:
            reply = s.recv(2000)
            head = struct.unpack(HEAD, reply[:32])
            assert head[:2] == (2 << 4 | 13, 3) and head[4:8] == (9, member, 3, epoch), head
            if head[8] == number:
                break
            assert head[8] == number - 1, head # the reply to a duplicate
        if head[2] & 2:
            direct += 1
        else:
            assert struct.unpack("<8i", reply[32:]) == tuple(3 * (number - i) for i in range(8)), reply
            sums[member] += 1
print("sums %d %d direct %d" % (sums[0], sums[1], direct))
PY

tap_run "a box starts" begin --json --job 9 --epoch 4 --exponent -3 --slots 8 --metrics 0
tap_like "it prints its settings" "$(cat box.out)" \
    '^box: 127.0.0.1:[0-9]*, members 0 .. 1, job 9, epoch 4, exponent -3, 8 slots'
tap_is "two members receive every sum" "$(python3 members.py "$port" 4 -3 20 2>&1)" "sums 20 20 direct 0"
tap_is "with another exponent no sum is valid" "$(python3 members.py "$port" 5 -2 3 2>&1)" "sums 0 0 direct 6"
tap_is "with the box's exponent sums are valid again" "$(python3 members.py "$port" 6 -3 3 2>&1)" "sums 3 3 direct 0"
python3 -c 'import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"garbage", ("127.0.0.1", int(sys.argv[1])))' "$port"
metrics() { python3 -c 'import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), end="")' "$(sed -n 's/^metrics: //p' box.out)"; }
has() { metrics >metrics.txt && grep -qx "$1" metrics.txt; }
tap_run "/metrics counts the malformed packet" tap_until has 'weft_box_packets_total{verdict="malformed"} 1'
tap_run "/metrics has the Prometheus format" python3 "$WEFT_SOURCE_ROOT/tests/cli/metrics_check.py" format metrics.txt
tap_is "/metrics has rounds, void rounds, values, epoch and members" "$(grep -e 'complete"' -e ^weft_box_rounds -e ^weft_box_values \
    -e ^weft_box_epoch -e '^weft_box_members ' metrics.txt | sed 's/.* //' | tr '\n' ' ')" "26 368 3 2 6 "
end INT
tap_is "Ctrl-C: exit status 0" $? 0
grep -v -e '^box:' -e '^metrics:' box.out >box.json
tap_is "the report: 26 rounds of two members, each packet twice" \
    "$(jq -r '.packets | "\(.summed) \(.complete) \(.waiting + .result + .stale) \(.malformed)"' box.json)" "26 26 52 1"
tap_is "the report has mode, epoch, exponent and members" "$(jq -r '"\(.mode) \(.epoch) \(.exponent) \(.members_known) \(.float32) \(.rounds_void)"' box.json)" \
    "process 6 -3 2 false 3"

begin --float32 --inject-loss 0.999 --inject-seed 3
tap_like "a box starts with --float32" "$(cat box.out)" 'epoch 0, float32, 512 slots$'
end TERM
tap_is "SIGTERM: exit status 0" $? 0
tap_like "the report as text has packets and rounds" "$(cat box.out)" '^packets added: 0; rounds complete: 0'
if [ -w /dev/full ]; then
    "$WEFT_BIN" aggregate --dense 127.0.0.1:0 --security none --members 2 --json >/dev/full 2>box.err &
    box=$!
    tap_until grep -q '^SigBlk:.*[1-9a-f]' "/proc/$box/status" # its signals are blocked: it will read them
    end INT
    tap_is "a full disk: exit status 1" $? 1
fi

refused() { # refused <regular expression of the error> <options...>
    sentence=$1
    shift
    tap_run_fails "rejects $*" 2 "$WEFT_BIN" aggregate "$@"
    tap_like "and the error says why" "$(cat "$tap_tmp/run.out")" "$sentence"
}
refused 'needs --security none: packets of dense rounds have no' --dense 127.0.0.1:0 --members 2
refused 'needs --security none' --dense 127.0.0.1:0 --members 2 --security seal
refused '\-\-members N is missing' --dense 127.0.0.1:0 --security none
refused 'is not HOST:PORT, such as 127.0.0.1:7701' --dense nowhere: --members 2 --security none
refused 'have none' --dense 127.0.0.1:0 --members 2 --security none --float32 --exponent 3
refused 'from -126 to 127' --dense 127.0.0.1:0 --members 2 --security none --exponent 128
refused 'unknown option --servers' --dense 127.0.0.1:0 --members 2 --security none --servers 127.0.0.1:1
tap_run_fails "an address other than loopback is rejected" 1 "$WEFT_BIN" aggregate --dense 0.0.0.0:0 --members 2 --security none
tap_like "the error says so" "$(cat "$tap_tmp/run.out")" 'loopback'
begin
tap_run_fails "a second box at the port fails" 1 "$WEFT_BIN" aggregate --dense "127.0.0.1:$port" --members 2 --security none
tap_like "the error names the port" "$(cat "$tap_tmp/run.out")" "port $port .* is in use"
end TERM
# --xdp without permission: the process itself sums the packets of these interfaces.
as_user=
[ "$(id -u)" != 0 ] || as_user="setpriv --bounding-set -all --inh-caps -all"
if ! $as_user true 2>/dev/null; then
    tap_skip "--xdp without BPF starts a process" "setpriv cannot drop capabilities"
    tap_done
fi
port=$(python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 0)); print(s.getsockname()[1])')
rm -f box.out
# shellcheck disable=SC2086
$as_user "$WEFT_BIN" aggregate --xdp lo --members 2 --through-queues --security none --port "$port" --job 9 --epoch 4 \
    --exponent -3 --slots 8 --metrics 0 >box.out 2>box.err &
box=$!
tap_run "--xdp without BPF starts a process" tap_until grep -q '^metrics: ' box.out
tap_like "it prints a warning" "$(cat box.err)" '^weft aggregate: .*; this process sums the packets instead'
tap_like "it has the settings of the options" "$(cat box.out)" "^box: 0.0.0.0:$port, members 0 .. 1, job 9, epoch 4, exponent -3, 8 slots"
tap_is "its members receive every sum" "$(python3 members.py "$port" 4 -3 20 2>&1)" "sums 20 20 direct 0"
tap_run "it serves /metrics" has 'weft_box_packets_total{verdict="complete"} 20'
end TERM
tap_is "it exits with 0" $? 0
# shellcheck disable=SC2086
tap_run_fails "with --no-fallback --xdp without BPF fails" 1 $as_user "$WEFT_BIN" aggregate --xdp lo --security none --no-fallback
tap_like "the error names weft doctor" "$(cat "$tap_tmp/run.out")" '`weft doctor` checks the host'
# shellcheck disable=SC2086
tap_run_fails "--xdp without BPF fails if the interface does not exist" 1 $as_user "$WEFT_BIN" aggregate --xdp no-such --security none
tap_like "the error names the interface" "$(cat "$tap_tmp/run.out")" 'no interface named no-such'
in_network='mount -t sysfs sysfs /sys && ip link add br0 type bridge && ip link add port0 type veth peer far0 &&
    ip link set port0 master br0'
if [ "$(id -u)" = 0 ] && unshare -nm sh -c "$in_network" 2>/dev/null; then
    tap_run_fails "--xdp without BPF fails at a port of a bridge" 1 unshare -nm sh -c "$in_network && exec $as_user \
        '$WEFT_BIN' aggregate --xdp port0 --security none"
    tap_like "the error names the bridge" "$(cat "$tap_tmp/run.out")" 'packets of port0, .* br0: name br0 instead'
else
    tap_skip "--xdp without BPF fails at a port of a bridge" "needs root and bridges"
fi
tap_like "aggregate --help names --dense" "$("$WEFT_BIN" aggregate --help)" '^  --dense HOST:PORT'
tap_run "aggregate --dense --help succeeds" "$WEFT_BIN" aggregate --dense 127.0.0.1:0 --help
tap_like "it says that packets are not authenticated" "$(cat "$tap_tmp/run.out")" 'Packets are not authenticated'
tap_done
