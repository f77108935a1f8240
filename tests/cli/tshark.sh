#!/bin/sh
# The Wireshark dissector: it decodes captures of whole runs without a malformed packet, its fields
# match the run's report, and it marks truncated and out-of-range fields as malformed.
#
# The simulator writes the capture, so no capture permission is needed. Packets of the classes AUTH
# and SEAL, and malformed ones, are made from captured ones with text2pcap. With root and dumpcap,
# loopback is captured too.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
cd "$tap_tmp" || exit 1
if ! command -v tshark >/dev/null || ! command -v text2pcap >/dev/null; then
    tap_skip "the dissector" "no tshark: install it (tools/bootstrap test)"
    tap_done
fi
HOME=$tap_tmp # ignore the user's settings
export HOME
lua=$WEFT_SOURCE_ROOT/tools/wireshark/weft.lua

# shark <capture> <other arguments of tshark...>
shark() {
    capture=$1
    shift
    tshark -X "lua_script:$lua" -r "$capture" "$@" 2>shark.err
}
# Number of frames that match a display filter.
frames() { shark "$1" -Y "$2" -T fields -e frame.number | wc -l; }
# All occurrences of a field, one per line.
values() { shark "$1" -T fields -e "$2" | tr ',' '\n' | grep .; }

# decoded <capture> <packets>: every packet is decoded as weft, none is malformed, and Lua reports
# no error.
decoded() {
    tap_is "$1: every packet is decoded" "$(frames "$1" weft)" "$2"
    tap_is "$1: none is malformed" \
        "$(shark "$1" -Y 'weft.malformed or _ws.malformed or _ws.lua.error or weft.cut' |
            head -n 3)" ""
    tap_is "$1: no error in Lua" "$(grep -i 'lua' shark.err)" ""
}

# ---- a whole run ---------------------------------------------------------------------------------
"$WEFT_BIN" sim incast --senders 4 --rounds 4 --bytes 250000 --loss 0.05 --bound 0.05 --json \
    --pcap run.pcap --trace run.trace >run.json
"$WEFT_BIN" trace summary run.trace --json >summary.json
events() { jq "[.endpoints[].events.$1] | add" summary.json; }
decoded run.pcap "$(jq .packets run.json)"
tap_is "the number of DATA packets is that of the report" "$(frames run.pcap weft.data)" "$(jq .data_sent run.json)"
tap_is "the number of DONE frames is that of the trace" "$(values run.pcap weft.done.msg | wc -l)" "$(events done_sent)"
tap_is "the number of handshake packets is that of the trace" "$(frames run.pcap 'weft.class >= 8')" "$(events handshake_sent)"
tap_is "DATA has the elements of the message" "$(values run.pcap weft.data.total | sort -u)" 62500
tap_is "the number of chunks follows from the chunk layout" "$(values run.pcap weft.data.chunks | sort -u)" 178
tap_is "HELLO has the names of five endpoints" "$(values run.pcap weft.name | sort -u | wc -l)" 5
tap_is "DONE of incomplete messages has the received chunks" \
    "$(shark run.pcap -Y 'weft.done.words > 0' -T fields -e weft.done.received | tr ',' '\n' |
        sort -u | awk '$1 < 178 && $1 >= 169 { good++ } END { print NR == good }')" 1
tap_like "the columns show class, number, message and chunk" "$(shark run.pcap -Y 'weft.data.chunk == 3' | head -n 1)" \
    'weft .*PLAIN, #[0-9]*, .*DATA [1-4] chunk 3'
tap_is "the chunk layout is in one DATA packet of each message" \
    "$(shark run.pcap -Y weft.data.total -T fields -e ip.src -e weft.data.msg | sort -u | wc -l)" 16
tap_is "all other DATA packets have the short header" \
    "$(frames run.pcap 'weft.data and not weft.flags.brief == 1 and not weft.data.total')" 0
tap_is "every chunk of a message was sent" \
    "$(shark run.pcap -Y 'ip.src == 10.0.0.2 and weft.data.msg == 1' -T fields \
        -e weft.data.chunk | sort -u | wc -l)" 178

for seed in 4 9 21 32 33 34; do
    "$WEFT_BIN" sim swarm --seeds $seed..$seed --pcap "seed$seed.pcap" --json >seed.json
    decoded "seed$seed.pcap" "$(jq .packets seed.json)"
done

# ---- other ports: the heuristic ------------------------------------------------------------------
text() { # hex lines on standard input, in text2pcap's format
    sed 's/../& /g; s/^/000000 /'
}
shark run.pcap -T fields -e udp.payload >run.hex
head -n 200 run.hex | text | text2pcap -q -u 40000,40001 - other.pcap 2>/dev/null
decoded other.pcap 200
echo "deadbeef00010000000000010000000000000377777703" "6578616d706c65" | tr -d ' ' | text |
    text2pcap -q -u 40000,40001 - dns.pcap 2>/dev/null
tap_is "packets of other protocols are not decoded" "$(frames dns.pcap weft)" 0

# ---- AUTH and SEAL -------------------------------------------------------------------------------
tag=a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5
grep '^20' run.hex | head -n 300 >plain.hex
sed "s/^20/21/; s/\$/$tag/" plain.hex | text | text2pcap -q -u 7700,7700 - auth.pcap 2>/dev/null
decoded auth.pcap 300
tap_is "AUTH: the tag is decoded" "$(values auth.pcap weft.tag | sort -u)" $tag
text <plain.hex | text2pcap -q -u 7700,7700 - plain.pcap 2>/dev/null
all="-e weft.number -e weft.data.msg -e weft.data.chunk -e weft.data.payload -e weft.ack.largest
-e weft.ack.word -e weft.done.received"
# shellcheck disable=SC2086 # words
tap_is "AUTH: all fields are those of PLAIN" "$(shark auth.pcap -T fields $all | cksum)" \
    "$(shark plain.pcap -T fields $all | cksum)"
sed "s/^20/22/; s/\$/$tag/" plain.hex | text | text2pcap -q -u 7700,7700 - seal.pcap 2>/dev/null
decoded seal.pcap 300
tap_is "SEAL: the payload is not decoded" \
    "$(frames seal.pcap 'weft.encrypted and weft.number and not weft.data and not weft.ack')" 300

# ---- malformed packets ----------------------------------------------------------------------------
# One capture for all of them, as each run of tshark takes a while.
# bad|good <name> <hex>: this packet is malformed, or decoded and not malformed
bad() {
    printf 'malformed: %s\n' "$1" >>packets
    echo "$2" >>packets.hex
}
good() {
    printf 'valid: %s\n' "$1" >>packets
    echo "$2" >>packets.hex
}
data=$(grep '^20[0-9a-f]1' plain.hex | head -n 1)
head=2002000000000001$(printf '%016x' 9)
good "PING" "${head}000104"
bad "a DATA packet cut short" "$(echo "$data" | cut -c 1-200)"
bad "half a header" "$(echo "$data" | cut -c 1-20)"
bad "neither CONTROL nor DATA" "2000000000000001$(printf '%016x' 9)"
good "a chunk with the short header" "2010000000000001$(printf '%08x' 9)0004000300000000""d1"
bad "the short header and no chunk" "2010000000000001$(printf '%08x' 9)0004000300000000"
good "the short header of a sender with other receivers" "2014000000000001$(printf '%08x' 9)0004000300000000""d1"
bad "the short header and a priority" "2018000000000001$(printf '%08x' 9)0004000300000000""d1"
bad "an empty control block" "${head}0000"
bad "a control block longer than the packet" "${head}000204"
bad "bytes behind it" "${head}00010400"
bad "an unknown frame" "${head}0001ff"
bad "FINISH with unknown flags" "${head}0006030200000001"
good "FINISH" "${head}0006030100000001"
bad "CLOSE with an unknown code" "${head}0003070009"
good "CRITICAL of 10 chunks" "${head}00180800000100000001""0000000a0000000000000000000003ff"
bad "CRITICAL of chunks that do not exist" \
    "${head}00180800000100000001""0000000a0000000000000000000007ff"
bad "DONE that received more than there is" \
    "${head}001802000000""000000010000000a0000000b0000000000000000"
good "DONE of a whole message" "${head}001802000000""000000010000000a0000000a0000000000000000"
good "PADDING" "${head}00060a0003000000"
good "BACKLOG" "${head}00050b00000102"
bad "BACKLOG cut short" "${head}00040b000001"
good "ACK_SHORT" "${head}00140c00000000090001000a0302""8000000000000001"
bad "ACK_SHORT cut short" "${head}00130c00000000090001000a0302""80000000000000"
bad "ACK_SHORT with IDLE" "${head}00140c01000000090001000a0302""8000000000000001"
bad "ACK_SHORT without its largest" "${head}00140c00000000090001000a0302""0000000000000001"
message=0d0101000000000500000002000800040000000000000001
good "MESSAGE" "${head}0020${message}d1d2d3d4d5d6d7d8"
bad "MESSAGE cut short" "${head}001f${message}d1d2d3d4d5d6d7"
bad "MESSAGE of two chunks" "${head}0020$(echo $message | sed s/0008/0001/)d1d2d3d4d5d6d7d8"
bad "PADDING that is not zero" "${head}00060a0003000001"
bad "AUTH without room for a tag" "2102000000000001$(printf '%016x' 9)000104"
bad "HELLO too short" "28$(printf '%0198d' 0)"
good "REFUSED of another version" "1c01020000000007"
good "UNKNOWN with a number and an incarnation" "2b005152""00000007""00000009""53545556""$tag"
text <packets.hex | text2pcap -q -u 7700,7700 - packets.pcap 2>/dev/null
shark packets.pcap -Y weft -T fields -e frame.number >packets.weft
shark packets.pcap -Y weft.malformed -T fields -e frame.number >packets.malformed
tap_is "each is in the capture" "$(frames packets.pcap frame)" "$(wc -l <packets)"
number=0
while read -r line; do
    number=$((number + 1))
    is_weft=$(grep -c "^$number\$" packets.weft)
    is_malformed=$(grep -c "^$number\$" packets.malformed)
    case $line in
    malformed:*) tap_is "$line" "$is_malformed" 1 ;;
    *) tap_is "$line" "$is_weft $is_malformed" "1 0" ;;
    esac
done <packets
echo "$data" | sed 's/^20/10/' | text | text2pcap -q -u 7700,7700 - version.pcap 2>/dev/null
tap_is "a packet of another version is recognised" "$(frames version.pcap weft.other_version)" 1

# ---- packets of an aggregation box ---------------------------------------------------------------
# The golden packets; lines of zeros are left out in the file.
python3 - "$WEFT_SOURCE_ROOT/tests/golden/agg.hex" >agg.hex <<'PY'
import sys
items = []
for line in open(sys.argv[1]):
    word = line.split()
    if line.startswith("item"):
        items.append(bytearray(int(word[1])))
    elif word and word[0].endswith(":"):
        at, data = int(word[0][:-1], 16), bytes.fromhex("".join(word[1:]))
        items[-1][at:at + len(data)] = data
print("\n".join(item.hex() for item in items))
PY
text <agg.hex | text2pcap -q -u 40000,40001 - agg.pcap 2>/dev/null
decoded agg.pcap "$(wc -l <agg.hex)"
one() { shark agg.pcap -Y "$1" -T fields -e "$2" | head -n 1; }
tap_is "AGG: kinds" "$(values agg.pcap weft.agg.kind | sort | uniq -c | tr -s ' \n' ' ')" " 14 1 3 2 7 3 3 4 "
tap_is "AGG: values of int32" "$(one 'weft.agg.kind == 1 and not weft.agg.agreed == 1' weft.agg.value)" \
    "1024,-2048,512,0,1,-256,1152,-48"
tap_is "AGG: values of float32" "$(one 'weft.agg.kind == 3 and weft.agg.float32 == 1' weft.agg.real |
    cut -d , -f 1-3)" "2,-4,1"
tap_is "AGG: exponents that members agree on" \
    "$(one 'weft.agg.agreed == 1 and weft.agg.round == 1' weft.agg.exponent)$(one \
        'weft.agg.agreed == 1 and weft.agg.round == 1' weft.agg.next)" "-28-10"
tap_is "AGG: the fields of hot rows" \
    "$(one 'weft.agg.number == 66 and weft.agg.kind == 2' weft.agg.block) $(one \
        'weft.agg.number == 66 and weft.agg.kind == 2' weft.agg.from) $(one \
        'weft.agg.number == 66 and weft.agg.kind == 2' weft.agg.value)" \
    "0,2 64 66,132,198,264,330,396,462,528,65,131,197,263,329,395,461,527"
tap_is "AGG: an ACK has the window" "$(shark agg.pcap -Y 'weft.agg.kind == 4' -T fields \
    -e weft.agg.base -e weft.agg.added -e weft.agg.refused | tail -n 1 | tr -d 0 | tr '\t' ' ')" \
    "64 x1,x,x,x x4,x,x,x"
tap_like "AGG: the columns show kind, member, slot and round" \
    "$(shark agg.pcap -Y 'weft.agg.kind == 3' | head -n 1)" 'weft .*AGG, SUM member 1, slot 0, round 0'
# One capture for all of them, as each run of tshark takes a while.
# agg good|bad <name> <hex>: this packet is decoded, and malformed or not
agg() {
    printf '%s %s\n' "$1" "$2" >>cases
    echo "$3" >>cases.hex
}
dense=2d0100f60102000000000003212223240000000500000000 # up to `from`
values=$(printf '%064d' 0)
agg good "DENSE" "${dense}0008000000000000$values"
agg bad "DENSE with a reserved byte" "${dense}0008000000000001$values"
agg bad "DENSE with next and no agreement" "${dense}00080a0000000000$values"
agg bad "DENSE of 7 values" "${dense}0007000000000000$values"
agg bad "DENSE without its last byte" "${dense}0008000000000000$(echo "$values" | cut -c 1-62)"
agg bad "DENSE with from" "$(echo $dense | sed 's/.$/1/')0008000000000000$values"
agg bad "DENSE that is DIRECT" "$(echo $dense | sed 's/^2d0100/2d0102/')0008000000000000$values"
agg good "SUM that is DIRECT" "$(echo $dense | sed 's/^2d0100/2d0302/')0008000000000000$values"
agg bad "an unknown kind of AGG" "$(echo $dense | sed 's/^2d01/2d05/')0008000000000000$values"
agg bad "half a header of AGG" "2d0100f60102"
rows=2d020000010200000000000321222324
agg good "ROWS across the end of the numbers" \
    "${rows}0000000affffffd0""0001000000000000""01000000$values"
agg bad "ROWS too far ahead" "${rows}000000c100000000""0001000000000000""01000000$values"
agg bad "ROWS with a reserved byte in a block" "${rows}0000000a00000000""0001000000000000""01000001$values"
ack=2d040000010200000000000321222324
agg good "ACK of a window" "${ack}0000000a000000400000000000000000$values$values"
agg bad "ACK with a base between words" "${ack}0000000a000000410000000000000000$values$values"
text <cases.hex | text2pcap -q -u 7701,7701 - cases.pcap 2>/dev/null
shark cases.pcap -T fields -e frame.number -e weft.version -e weft.malformed >cases.out
number=0
while read -r kind name; do
    number=$((number + 1))
    tap_like "AGG, $kind: $name" "$(sed -n "${number}p" cases.out | tr '\t' ' ')" \
        "^$number 2 $([ "$kind" = bad ] && echo '1$' || echo '$')"
done <cases

# ---- loopback ------------------------------------------------------------------------------------
# The capture contains the sender's unsplit bursts; the dissector splits them like a network card.
if [ "$(id -u)" = 0 ] && dumpcap -D 2>/dev/null | grep -q '\. lo'; then
    port=$(tap_port) # other processes of this machine also use loopback
    : >dumpcap.err
    dumpcap -i lo -B 64 -f "udp port $port" -w lo.pcap 2>dumpcap.err &
    pid=$!
    tap_until grep -q '^File:' dumpcap.err
    "$WEFT_BIN" train --workers 1 --servers 1 --port $port --epochs 2 --json >lo.json 2>/dev/null
    sent=$(jq .counters.data_sent lo.json)
    all_captured() { [ "$(values lo.pcap weft.data.msg | wc -l)" -ge "$sent" ]; }
    tap_until all_captured
    kill -INT "$pid"
    wait "$pid"
    dropped=$(sed -n 's/.*dropped on interface .*: [0-9]*\/\([0-9]*\).*/\1/p' dumpcap.err)
    if [ "$dropped" = 0 ]; then
        tap_is "loopback: no packet is malformed" "$(frames lo.pcap 'weft.malformed or weft.cut')" 0
        tap_is "loopback: every DATA packet is decoded" "$(values lo.pcap weft.data.msg | wc -l)" \
            "$(jq .counters.data_sent lo.json)"
    else
        tap_skip "loopback" "the capture has lost packets"
    fi
else
    tap_skip "loopback" "needs root and dumpcap"
fi
tap_done
