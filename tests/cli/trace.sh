#!/bin/sh
# Traces: every record is valid qlog JSON, the counts equal the endpoint's counters, damaged files are
# rejected or read up to the damage, and a trace that cannot be written does not stop the training.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
cd "$tap_tmp" || exit 1

# Counts of a trace must equal the endpoint's counters. Prints a line for each difference.
cat >equal.jq <<'END'
.endpoints[] | . as $e
| if (.counters | not) then "\(.label): no counters" else
  [["data_sent", .data_sent], ["lost_packets", .events.packet_lost],
   ["spurious_losses", .events.packet_spurious], ["retransmitted_packets", .events.chunk_again],
   ["probes", .events.pto], ["datagrams_sent", .events.packet_sent + .events.handshake_sent],
   ["messages_sent", .outgoing.complete + .outgoing.short],
   ["messages_unknown", .outgoing.unknown],
   ["messages_received", .incoming.complete + .incoming.short],
   ["messages_short", .incoming.short]] + [.drops | to_entries[] | [.key, .value]]
  | .[] | select($e.counters[.[0]] != .[1])
  | "\($e.label): \(.[0]) is \($e.counters[.[0]]), but \(.[1]) in the trace" end,
  if $e.overwritten != 0 then "\($e.label): \($e.overwritten) records overwritten" else empty end
END
equal() {
    tap_is "the counts in $1 equal the endpoints' counters" \
        "$("$WEFT_BIN" trace summary "$1" --json | jq -r -f equal.jq)" ""
}

incast="--senders 4 --rounds 5 --bytes 100000 --loss 0.05 --bound 0.1"
# shellcheck disable=SC2086 # words
"$WEFT_BIN" sim incast $incast --json --trace incast.trace >traced.json
# shellcheck disable=SC2086
"$WEFT_BIN" sim incast $incast --json >plain.json
tap_is "--trace does not change the run" "$(cat traced.json)" "$(cat plain.json)"
equal incast.trace
for seed in 3 7 8 57; do
    "$WEFT_BIN" sim swarm --seeds $seed..$seed --trace "seed$seed.trace" >/dev/null
    equal "seed$seed.trace"
done

# qlog: 0x1e, a JSON text and a newline for each record, and for the header before them.
summary=$("$WEFT_BIN" trace summary incast.trace --json)
records=$(echo "$summary" | jq '[.endpoints[].records] | add')
tap_run "trace qlog -o succeeds" "$WEFT_BIN" trace qlog incast.trace -o incast.sqlog
cp incast.trace before.trace
tap_run_fails "-o of qlog is the input: exit status 1" 1 "$WEFT_BIN" trace qlog incast.trace -o incast.trace
tap_run "the input is unchanged" cmp incast.trace before.trace
tap_is "each line begins with a record separator" \
    "$(LC_ALL=C grep -c "^$(printf '\036'){" incast.sqlog)" "$((records + 1))"
tr -d '\036' <incast.sqlog >incast.jsonl
tap_is "each line is JSON with time, name and data" \
    "$(jq -e -c 'select((.time | type) == "number" and (.name | type) == "string"
        and (.data | type) == "object")' incast.jsonl | wc -l)" "$records"
tap_is "the header names the format" "$(head -n 1 incast.jsonl |
    jq -r '.file_schema + " " + .serialization_format')" \
    "urn:ietf:params:qlog:file:sequential application/qlog+json-seq"
count() { jq -s "[.[] | select(.name == \"$1\")] | length" incast.jsonl; }
total() { echo "$summary" | jq "[.endpoints[].counters.$1] | add"; }
tap_is "the number of lost packets is that of the counters" "$(count quic:packet_lost)" "$(total lost_packets)"
tap_is "the number of DATA packets is that of the run" "$(jq -s '[.[] | select(.name == "quic:packet_sent" and
    (.weft.holds | index("data")))] | length' incast.jsonl)" "$(jq .data_sent plain.json)"
tap_is "the number of closed messages is that of the counters" "$(jq -s '[.[] | select(.name == "weft:message_closed" and
    .data.direction == "outgoing")] | length' incast.jsonl)" "$(total messages_sent)"
tap_is "times do not decrease" "$(jq -s '[.[1:][].time] | . == sort' incast.jsonl)" true
tap_is "standard output and -o have the same content" "$("$WEFT_BIN" trace qlog incast.trace | cksum)" \
    "$(cksum <incast.sqlog)"
name=$(printf 'incast\377.trace')
cp incast.trace "$name"
tap_run "the title is UTF-8, whatever the name of the file" sh -c \
    '"$WEFT_BIN" trace qlog "$1" | iconv -f utf-8 -t utf-8 >/dev/null' sh "$name"
rm "$name"

# One message: it begins with `opened` and ends with `closed` (except for copies of DONE); the
# number of packets equals that in qlog.
life=$("$WEFT_BIN" trace msg incast.trace --msg 2 --endpoint 0 --json)
tap_is "the events of a message begin with opened and end with closed" "$(echo "$life" |
    jq -r '[.[0].events[].event | select(startswith("message_"))] | .[0] + " " + .[-1]')" \
    "message_opened message_closed"
tap_is "trace msg and qlog have the same number of packets of the message" "$(echo "$life" | jq '[.[0].events[] | select(.event == "packet_sent")] | length')" \
    "$(jq -s '[.[] | select(.name == "quic:packet_sent" and .group_id == "host 0, peer 0" and
        .weft.msg == 2 and (.weft.holds | index("data")))] | length' incast.jsonl)"
tap_like "trace msg prints a table" "$("$WEFT_BIN" trace msg incast.trace --msg 2 --endpoint 0)" \
    ' message_closed .*complete, '
tap_run_fails "a message that does not exist: exit status 1" 1 "$WEFT_BIN" trace msg incast.trace --msg 99999

# Truncated files, and files that are not traces.
head -c 100001 incast.trace >cut.trace
tap_like "a truncated file is reported" "$("$WEFT_BIN" trace summary cut.trace 2>&1)" 'is truncated'
tap_is "it is read up to its end" "$("$WEFT_BIN" trace summary cut.trace --json 2>/dev/null |
    jq '.truncated and ([.endpoints[].records] | add) > 1000')" true
tap_run_fails "a JSON file is rejected" 1 "$WEFT_BIN" trace summary plain.json
: >empty
tap_run_fails "an empty file is rejected" 1 "$WEFT_BIN" trace summary empty
tap_run_fails "a missing file: exit status 1" 1 "$WEFT_BIN" trace qlog does.not.exist
tap_run_fails "trace summary without a file: usage error" 2 "$WEFT_BIN" trace summary
tap_run_fails "trace msg without a message: usage error" 2 "$WEFT_BIN" trace msg incast.trace
tap_run_fails "--trace with two seeds: usage error" 2 "$WEFT_BIN" sim swarm --seeds 1..2 --trace x
tap_run_fails "--pcap in a directory that does not exist: exit status 1" 1 "$WEFT_BIN" sim swarm --seeds 1..1 --pcap /no/such/x
tap_run_fails "a device has no end" 1 "$WEFT_BIN" trace summary /dev/zero

# Standard output that cannot be written is an error.
"$WEFT_BIN" sim swarm --seeds 1..1 --trace open.trace >open.out
"$WEFT_BIN" sim swarm --seeds 1..1 >&- 2>closed.err
tap_is "closed standard output" "$? $(cat closed.err)" \
    "1 weft sim: standard output: Bad file descriptor"
"$WEFT_BIN" coordinator --security none --port 0 >&- 2>closed.err &
coordinator=$!
tap_at_exit 'kill $coordinator 2>/dev/null'
has_null() { [ "$(readlink /proc/$coordinator/fd/1)" = /dev/null ]; } # before: the shell's own
tap_until has_null
tap_is "no file or socket takes its descriptor" "$(readlink /proc/$coordinator/fd/1)" /dev/null
kill $coordinator
if [ -w /dev/full ]; then
    for command in "--version" "--help" "trace --help" "trace summary open.trace" \
        "sim swarm --seeds 1..1"; do
        status=0
        # shellcheck disable=SC2086
        "$WEFT_BIN" $command >/dev/full 2>full.err || status=$?
        tap_is "no room for the output of $command" "$status $(grep -c 'standard output: No space' full.err)" "1 1"
    done
    tap_run_fails "a full disk: exit status 1" 1 "$WEFT_BIN" trace qlog incast.trace -o /dev/full
    tap_run_fails "--trace on a full disk: exit status 1" 1 "$WEFT_BIN" sim swarm --seeds 1..1 --trace /dev/full
else
    tap_skip "no room for the output" "no /dev/full"
fi
tap_run "trace --help succeeds" "$WEFT_BIN" trace --help
for verb in summary msg qlog; do
    tap_like "$verb's help shows an example" "$("$WEFT_BIN" trace $verb --help)" '^  weft '
done

# Real sockets: one file per process, over both drivers.
for drive in caller engine; do
    "$WEFT_BIN" train --workers 2 --servers 1 --shards-per-server 2 --epochs 1 --batch 256 \
        --inject-loss 0.02 --progress-thread $drive --trace "$drive" --json >run.json 2>/dev/null
    tap_is "$drive: training succeeds" "$(jq '.counters.data_sent > 0' run.json)" true
    for process in worker-0 worker-1 server-0; do
        equal "$drive.$process"
    done
    tap_is "$drive: the server's file has two shards" \
        "$("$WEFT_BIN" trace summary "$drive.server-0" --json | jq '.endpoints | length')" 2
done

# A full disk is reported once per file, and training continues.
if [ -w /dev/full ]; then
    ln -s /dev/full full.worker-0
    ln -s /dev/full full.server-0
    "$WEFT_BIN" train --workers 1 --servers 1 --epochs 1 --batch 1024 --trace full \
        --json >run.json 2>full.err
    tap_is "a full disk does not stop training" "$? $(jq '.counters.data_sent > 0' run.json)" "0 true"
    tap_is "it is reported once for each file" "$(grep -c 'the trace full.* ends here' full.err)" 2
else
    tap_skip "a full disk does not stop training" "no /dev/full"
fi
"$WEFT_BIN" train --workers 1 --servers 1 --epochs 1 --batch 1024 --trace /no/such/place \
    --json >run.json 2>none.err
tap_is "neither does a file that cannot be created" "$? $(grep -c 'no trace: ' none.err)" "0 2"
tap_done
