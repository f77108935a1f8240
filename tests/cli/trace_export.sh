#!/bin/sh
# `weft trace export`: every slice of a Chrome trace is checked against the format and its record;
# JSON lines and CSV hold every row of every table.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
tests=$WEFT_SOURCE_ROOT/tests/cli
make_db() { "$tests/records_make.py" "$@"; }
export_db() { "$WEFT_BIN" trace export "$@"; }
chrome_errors() { "$tests/chrome_check.py" "$@" 2>&1 | head -n 20; }

make_db run.db --rpcs 2000 --slow ps_wait || exit 1

# ---- Chrome ----------------------------------------------------------------------------------------
tap_run "chrome -o" "$WEFT_BIN" trace export run.db --format chrome -o run.json
tap_is "prints nothing on success" "$(cat run.out)" ""
tap_is "every slice is valid and equal to its record" "$(chrome_errors run.json run.db)" ""
tap_is "standard output and -o have the same content" "$(export_db run.db --format chrome | cksum)" "$(cksum <run.json)"
tap_is "a worker has a track for each stage" \
    "$(jq -r '[.traceEvents[] | select(.name == "thread_name" and .pid == 1000000000) | .args.name] |
        unique | join(" ")' run.json)" "N_tx RPC W_proc W_queue"
tap_like "servers are processes of the trace" \
    "$(jq -r '.traceEvents[] | select(.name == "process_name") | .args.name' run.json)" '^server 2$'
tap_is "--worker selects one worker" "$(export_db run.db --format chrome --worker 3 |
    jq -c '[.traceEvents[] | select(.ph == "X") | .args.worker] | unique')" "[3]"
tap_is "--from and --to select RPCs by time" "$(export_db run.db --format chrome --from 0.1 --to 0.2 |
    jq '[.traceEvents[] | select(.name == "push" or .name == "pull") | .ts] |
        min >= 100000 and max < 200000')" true
cp run.db servers.db # of servers alone
python3 - <<'END'
import sqlite3
db = sqlite3.connect("servers.db")
db.execute("DELETE FROM rpc")
db.commit()
END
count() { python3 -c "
import sqlite3, sys
print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone())" servers.db \
    "SELECT count(*) FROM served WHERE arrival_ns - (SELECT min(arrival_ns) FROM served) BETWEEN $1 AND $2"; }
lines() { export_db "$@" --format csv --table served | tail -n +2 | wc -l; }
tap_is "without RPCs --from is after the first arrival" "$(lines servers.db --from 0.1)" "$(count 100000001 1e18)"
tap_is "without RPCs --to is after the first arrival" "$(lines servers.db --to 0.1)" "$(count 0 99999999)"
tap_is "any --to may be given" "$(lines run.db --to 1e30)" "$(lines run.db)"
for part in 0 1; do
    make_db part$part.db --rpcs 2000 --slow ps_wait --part $part/2
done
tap_is "several files are merged" "$(export_db part0.db part1.db --format chrome |
    jq '[.traceEvents[] | select(.ph == "X")] | length')" \
    "$(jq '[.traceEvents[] | select(.ph == "X")] | length' run.json)"

# Overlapping RPCs have separate tracks: all RPCs of one worker, at the same time.
cp run.db crowd.db
python3 - <<'END'
import sqlite3
db = sqlite3.connect("crowd.db")
db.execute("DELETE FROM rpc WHERE rowid > 600")
db.execute("UPDATE rpc SET worker = 0, server = 0, rpc = rowid")
db.execute("DELETE FROM served")
db.commit()
END
tap_run "chrome with 600 RPCs at the same time succeeds" "$WEFT_BIN" trace export crowd.db --format chrome -o crowd.json
tap_like "RPCs without a server's record are reported" "$(cat run.out)" 'for 600 RPCs the server.s record'
tap_is "no slice overlaps another one of its track" "$(chrome_errors crowd.json)" ""
python3 - <<'END'
import sqlite3
db = sqlite3.connect("crowd.db")
db.execute("UPDATE rpc SET rpc = rowid + 600 * ?", (0,))
for i in range(1, 3):
    db.execute("INSERT INTO rpc SELECT * FROM rpc WHERE rpc <= 600")
    db.execute("UPDATE rpc SET rpc = rowid")
db.execute("UPDATE rpc SET t0_ns = 1000, t1_ns = 2000000, n_tx_ns = 1000")
db.commit()
END
tap_like "more than 999 simultaneous RPCs are omitted, with a warning" \
    "$(export_db crowd.db --format chrome 2>&1 >crowd.json)" 'slices are omitted'
tap_is "the other slices are valid" "$(chrome_errors crowd.json)" ""

# Servers on another clock.
cp run.db clock.db
python3 - <<'END'
import sqlite3
db = sqlite3.connect("clock.db")
db.execute("UPDATE served SET arrival_ns = arrival_ns + 5000000000000,"
           " departure_ns = departure_ns + 5000000000000")
db.commit()
END
tap_like "a server's different clock is reported" "$(export_db clock.db --format chrome 2>&1 >clock.json)" \
    'for 2000 RPCs .* halves'
tap_is "the durations of stages are as recorded" "$(chrome_errors clock.json clock.db)" ""

# ---- JSON lines, CSV -----------------------------------------------------------------------------------
export_db run.db --format jsonl >run.jsonl
tap_is "jsonl has a line for each row of each table" \
    "$(jq -r .table run.jsonl | sort | uniq -c | awk '{ print $2 "=" $1 }' | tr '\n' ' ')" \
    "$(for t in active hot hot_total meta process rpc served; do
        printf '%s=%s ' $t "$("$WEFT_BIN" trace sql run.db "SELECT count(*) AS n FROM $t" --json | jq '.[0].n')"
    done)"
tap_is "jsonl has all columns" "$(jq -c 'select(.table == "served") | keys_unsorted' run.jsonl | head -n 1)" \
    '["table","server","worker","rpc","kind","arrival_ns","departure_ns","ps_proc_ns","ps_wait_ns","ps_queue_ns"]'
tap_is "CSV has the table rpc by default" "$(export_db run.db --format csv | cksum)" \
    "$("$WEFT_BIN" trace sql run.db 'SELECT * FROM rpc' --csv | cksum)"
tap_is "CSV has the table of --table" "$(export_db run.db --format csv --table hot_total)" \
    "$("$WEFT_BIN" trace sql run.db 'SELECT * FROM hot_total' --csv)"
tap_is "--server selects one server" "$(export_db run.db --format jsonl --table served --server 1 | jq -s 'map(.server) | unique' -c)" "[1]"

# ---- error texts
# ------------------------------------------------------------------------------------------
if [ -w /dev/full ]; then
    tap_run_fails "a full disk: exit status 1" 1 "$WEFT_BIN" trace export run.db --format jsonl -o /dev/full
    # More than the stream's buffer: writes fail before the file is closed.
    tap_is "the error has the reason" "$(cat run.out)" \
        "weft trace export: /dev/full: No space left on device"
    "$WEFT_BIN" trace export run.db --format jsonl >/dev/full 2>full.err
    tap_is "also on standard output" "$? $(cat full.err)" \
        "1 weft trace export: standard output: No space left on device"
else
    tap_skip "a full disk: exit status 1" "no /dev/full"
fi
cp run.db before.db
ln -s run.db link.db
ln run.db hard.db
for out in run.db "$PWD/run.db" link.db hard.db; do
    tap_run_fails "-o $(basename "$out") is the input: exit status 1" 1 "$WEFT_BIN" trace export run.db --format csv -o "$out"
    tap_like "the error says so" "$(cat run.out)" "^weft trace export: cannot write $out: it is an input; name another file"
    tap_run "the input is unchanged" cmp run.db before.db
done
tap_run_fails "-o in a directory that does not exist: exit status 1" 1 "$WEFT_BIN" trace export run.db --format csv -o no/such/file
tap_run_fails "a missing input file: exit status 1" 1 "$WEFT_BIN" trace export missing --format csv
tap_run_fails "no --format: usage error" 2 "$WEFT_BIN" trace export run.db
tap_run_fails "an unknown --format: usage error" 2 "$WEFT_BIN" trace export run.db --format xml
tap_run_fails "--table with --format chrome: usage error" 2 "$WEFT_BIN" trace export run.db --format chrome --table rpc
tap_run_fails "--from after --to: usage error" 2 "$WEFT_BIN" trace export run.db --format chrome --from 2 --to 1
tap_done
