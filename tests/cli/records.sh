#!/bin/sh
# --records: the database of a job that ends normally, is interrupted, is killed, or cannot write to
# the given path.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
data=$WEFT_SOURCE_ROOT/data/adult/adult.data.zst
cd "$tap_tmp" || exit 1
# Conditions on times hold for more than 99 % of the RPCs, not for all: the wall clock, which the kernel's timestamps use, may be set
# meanwhile.

# is_gone <pid>: also true for a zombie.
is_gone() {
    ! grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null
}

# query <database> <SQL>: the only row of the result, columns joined by "|"; by Python's sqlite3.
query() {
    python3 - "$1" "$2" <<'END'
import sqlite3, sys
db = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True)
print("|".join(str(v) for v in db.execute(sys.argv[2]).fetchone()))
END
}

spools() {
    find . -name '*.spool-*' | wc -l
}

# ---- a run that ends normally ----
tap_run "train --records" "$WEFT_BIN" train --data "$data" --workers 2 --servers 2 --epochs 1 --loss-bound 0 \
    --active-window-us 500 --records r.db --report report.json
tap_like "it prints the number of RPCs" "$(cat run.out)" '^records: r.db: [1-9][0-9]* RPCs, 0 records dropped$'
tap_is "no spool is left" "$(spools)" 0
tap_is "the database has four processes that ended normally" \
    "$(query r.db "SELECT count(*), sum(ended), sum(role = 'worker'), sum(dropped) FROM process")" '4|4|2|0'
tap_is "meta has version and window" "$(query r.db "SELECT group_concat(key || '=' || value, ' ') FROM (SELECT * FROM meta
    WHERE key IN ('schema_version', 'window_ns') ORDER BY key)")" 'schema_version=1 window_ns=500000'
tap_like "meta has the command line" "$(query r.db "SELECT value FROM meta WHERE key = 'command'")" \
    '^weft train --data .* --records r.db '
tap_is "each push and pull of a worker has a record of its server" \
    "$(query r.db "SELECT (SELECT count(*) FROM rpc) = (SELECT count(*) FROM rpc JOIN served
        USING (server, worker, rpc, kind)), (SELECT count(*) FROM rpc) > 300")" '1|1'
tap_is "N_tx is the time on the network, to 2 us" \
    "$(query r.db "SELECT avg(abs(n_tx_ns - (arrival_ns - t0_ns + t1_ns - departure_ns)) <= 2000) > 0.99
        FROM rpc JOIN served USING (server, worker, rpc)")" 1
tap_is "requests and replies have a positive network time" \
    "$(query r.db "SELECT avg(arrival_ns > t0_ns AND t1_ns > departure_ns) > 0.99 FROM rpc JOIN served
        USING (server, worker, rpc)")" 1
tap_is "active has each window with requests once, with 1 or 2 workers" \
    "$(query r.db "SELECT count(*) = count(DISTINCT server || ' ' || start_ns), min(workers) >= 1,
        max(workers) <= 2, min(window_ns), max(start_ns % window_ns) FROM active")" '1|1|1|500000|0'
tap_is "hot has as many updates as rows were pushed" \
    "$(query r.db "SELECT sum(updates) = (SELECT sum(rows) FROM rpc WHERE kind = 1), min(exact),
        (SELECT count(*) > 1000 AND max(updates) > min(updates) FROM hot) FROM hot_total")" '1|1|1'
tap_is "the report has the dropped records" "$(jq '.counters.records_dropped' report.json)" 0

# ---- JSON lines ----
tap_run "train --records FILE.jsonl" "$WEFT_BIN" train --data "$data" --workers 1 --servers 1 \
    --epochs 1 --records r.jsonl --quiet
for verb in "merge -o merged.db" summary slow hot; do
    # shellcheck disable=SC2086 # words
    tap_run_fails "weft trace ${verb%% *} rejects JSON lines" 1 "$WEFT_BIN" trace $verb r.jsonl
    tap_like "the error says that the file has JSON lines" "$(cat run.out)" 'r.jsonl.* has records as lines of JSON, .*name that does not end in .jsonl'
done
tap_is "each line is an object of a table" "$(jq -s 'map(.table) | unique | join(" ")' r.jsonl)" \
    '"active hot hot_total meta process rpc served"'
tap_is "there are as many served as rpc records" \
    "$(jq -s '(map(select(.table == "rpc")) | length) == (map(select(.table == "served")) | length)' r.jsonl)" true

# ---- Ctrl-C ----
: >log
"$WEFT_BIN" train --data "$data" --workers 2 --servers 1 --epochs 10000 --records c.db >log 2>&1 &
train=$!
tap_until grep -q '^epoch 1/' log
kill -INT "$train"
status=0
wait "$train" || status=$?
tap_is "Ctrl-C: exit status 1" "$status" 1
tap_like "Ctrl-C: the records are merged" "$(cat log)" '^records: c.db: [1-9]'
tap_is "Ctrl-C: no spool is left" "$(spools)" 0
tap_is "Ctrl-C: the database has all three processes" "$(query c.db "SELECT count(*) FROM process")" 3

# ---- Ctrl-C after the end of the program that reads the output, such as tee ----
mkfifo piped
"$WEFT_BIN" train --data "$data" --workers 2 --servers 1 --epochs 10000 --records piped.db >piped 2>&1 &
train=$!
sed '/^epoch 1\//q' <piped >log
kill -INT "$train"
status=0
wait "$train" || status=$?
tap_is "Ctrl-C without a reader: exit status 1" "$status" 1
tap_is "Ctrl-C without a reader: the database has all three processes" \
    "$(query piped.db "SELECT count(*) FROM process")" 3
"$WEFT_BIN" server --security none --port 0 --records alone.db >piped 2>/dev/null &
server=$!
sed '/^shard 0/q' <piped >log
port=$(sed -n 's/^shard 0 .*:\([0-9]*\)$/\1/p' log)
tap_run "a worker of a server whose output has no reader succeeds" "$WEFT_BIN" worker --security none \
    --servers "127.0.0.1:$port" --data "$data" --epochs 1
kill -TERM "$server"
status=0
wait "$server" || status=$?
tap_is "a server that cannot print its counters: exit status 1" "$status" 1
tap_is "its database is written" "$(query alone.db "SELECT count(*) FROM process")" 1
rm piped

# ---- kill -9 of all processes ----
: >log
"$WEFT_BIN" train --data "$data" --workers 2 --servers 1 --epochs 10000 --records k.db >log 2>&1 &
train=$!
tap_until grep -q '^epoch 3/' log
# Only written records survive, so wait until each recorder has written some.
all_wrote() {
    [ "$(find . -name 'k.db.spool-*' -size +8k | wc -l)" -eq 3 ]
}
tap_until all_wrote
kill -KILL "$train"
wait "$train" 2>/dev/null
for pid in $(sed -n 's/^[a-z]* [0-9]*: pid //p' log); do
    tap_until is_gone "$pid"
done
tap_is "killed: three spools and no database are left" "$(spools) $(ls k.db 2>/dev/null)" "3 "
tap_run "weft trace merge succeeds" "$WEFT_BIN" trace merge k.db.spool-* -o k.db
tap_like "it prints the number of RPCs" "$(cat run.out)" '^k.db: 3 processes, [1-9][0-9]* RPCs'
tap_like "it prints that three processes did not exit normally" "$(cat run.out)" '^3 did not exit normally'
tap_is "killed: records of workers and server match" \
    "$(query k.db "SELECT count(*) > 0 FROM rpc JOIN served USING (server, worker, rpc)")" 1

before=$(query k.db "SELECT count(*) FROM rpc")
tap_run_fails "a merge that would lose the records of the existing file is refused" 1 \
    "$WEFT_BIN" trace merge r.db -o k.db
tap_like "the error says what to do" "$(cat run.out)" 'k.db exists.*name it as an input, too'
tap_is "the file is unchanged" "$(query k.db "SELECT count(*) FROM rpc")" "$before"
tap_run "the file can be an input, too" "$WEFT_BIN" trace merge k.db r.db -o k.db
tap_is "it then has the records of both" \
    "$(query k.db "SELECT count(*) FROM rpc")" "$((before + $(query r.db "SELECT count(*) FROM rpc")))"

# The same command again: the spools of the killed run are kept under other names.
tap_run "another run with the same path succeeds" "$WEFT_BIN" train --data "$data" --workers 2 --servers 1 \
    --epochs 1 --records k.db
tap_like "it prints the new names of the spools" "$(cat run.out)" 'kept as k.db.spool-worker-0.1'
tap_is "the spools of the killed run are kept" "$(spools)" 3
rm -f k.db.spool-*

# ---- damaged spools ----
printf 'no records at all' >bad
tap_run_fails "merge of a file without records: exit status 1" 1 "$WEFT_BIN" trace merge bad -o m.db
tap_like "the error names the file" "$(cat run.out)" 'bad has no records'
: >nothing
tap_run_fails "merge of empty files: exit status 1" 1 "$WEFT_BIN" trace merge nothing nothing -o m.db
tap_like "the error says so" "$(cat run.out)" '^weft trace merge: nothing and the others: no records'
tap_run_fails "merge of a missing file: exit status 1" 1 "$WEFT_BIN" trace merge missing -o m.db
tap_run_fails "merge without -o: usage error" 2 "$WEFT_BIN" trace merge r.db
tap_run_fails "merge without an input file: usage error" 2 "$WEFT_BIN" trace merge -o m.db
tap_is "no file is created" "$(ls m.db* 2>/dev/null)" ""
tap_run "databases can be merged" "$WEFT_BIN" trace merge r.db c.db nothing -o m.db
tap_like "an empty file among them is reported" "$(cat run.out)" '^1 file is empty: no records of its process'
tap_is "their processes have unique numbers" \
    "$(query m.db "SELECT count(*), max(id) FROM process")" '7|7'

# ---- existing files ----
tap_run_fails "--records in a directory that does not exist: exit status 1" 1 "$WEFT_BIN" train --data "$data" --records no/r.db
tap_like "the error says so" "$(cat run.out)" 'cannot write no/r.db: No such file'
tap_run_fails "a server with an existing --records file fails" 1 "$WEFT_BIN" server --security none --port 0 \
    --records r.db
tap_like "the error names the file" "$(cat run.out)" 'r.db exists already.*name another file, or remove it'

# ---- a manually started server and worker with the same file ----
: >server
"$WEFT_BIN" server --security none --peer-timeout 60 --port 0 --records s.db >server 2>&1 &
server=$!
tap_until grep -q '^shard 0' server
port=$(sed -n 's/^shard 0 .*:\([0-9]*\)$/\1/p' server)
tap_run "a manually started worker succeeds" "$WEFT_BIN" worker --security none --peer-timeout 60 --servers "127.0.0.1:$port" \
    --data "$data" --epochs 1 --records s.db
tap_run_fails "a second server with the same --records file fails" 1 "$WEFT_BIN" server --security none --port 0 \
    --records s.db
tap_run_fails "a server whose port is in use fails" 1 "$WEFT_BIN" server --security none --port "$port" \
    --records p.db
tap_is "it leaves no records file" "$(ls p.db* 2>/dev/null)" ""
kill "$server"
wait "$server"
tap_is "one database has the records of both" "$(query s.db "SELECT (SELECT count(*) FROM process), count(*) > 0,
    count(*) = (SELECT count(*) FROM rpc) FROM rpc JOIN served USING (server, worker, rpc)")" '2|1|1'

tap_done
