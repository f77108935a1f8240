#!/bin/sh
# `weft trace` on databases of records: its output equals an independent computation from the rows; it finds
# the cause of a slow RPC; files of other kinds and damaged files are rejected with an error.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
tests=$WEFT_SOURCE_ROOT/tests/cli
make_db() { "$tests/records_make.py" "$@"; }
trace() { "$WEFT_BIN" trace "$@"; }

make_db run.db --slow ps_queue --dropped 7 || exit 1
before=$(cksum <run.db)

# ---- summary, slow, hot ----------------------------------------------------------------------------
for verb in summary slow hot; do
    trace $verb run.db --json >$verb.json
    tap_is "$verb agrees with records_check.py" \
        "$("$tests/records_check.py" run.db $verb $verb.json 2>&1)" ""
done
tap_like "summary has a table" "$(trace summary run.db)" '^  PS_proc  .* %$'
tap_like "summary reports dropped records" "$(trace summary run.db)" '^DROPPED: 7 of 40007 records'
tap_like "summary lists the slowest server first" \
    "$(trace summary run.db | grep -A 2 'slowest first' | tail -n 1)" '^ *0 '
tap_is "slow -n limits the number of RPCs" "$(trace slow run.db -n 3 --json | jq length)" 3
tap_is "slow lists the slowest RPC first" \
    "$(trace slow run.db -n 1 --json | jq '.[0].latency_us')" \
    "$(trace summary run.db --json | jq '[.push, .pull | .latency_us.max] | max')"
for stage in n_tx ps_queue ps_wait ps_proc w_queue w_proc; do
    make_db $stage.db --rpcs 5000 --slow $stage
    tap_is "slow finds the stage that delayed RPCs: $stage" \
        "$(trace slow $stage.db -n 5 --json | jq -r '[.[].because | ascii_downcase] | unique[]')" \
        $stage
done
tap_like "slow prints the stage" "$(trace slow ps_queue.db -n 5)" '^delayed by: *PS_queue 5$'
tap_like "hot prints shares" "$(trace hot run.db)" '^  top 1000 '
tap_like "hot says that counts are approximate" "$(trace hot run.db)" 'approximate'
tap_is "ids are unsigned" "$(trace hot run.db --top 1 --json | jq -r '.hot[0].id')" 9223372036854775808
tap_is "hot of a table without updates says so" "$(trace hot run.db --table 9)" "no updates were counted in this run"

# ---- several files of one run -------------------------------------------------------------------------
for part in 0 1 2; do
    make_db part$part.db --slow ps_queue --dropped 7 --part $part/3
done
trace summary part0.db part1.db part2.db --json | jq 'del(.command)' >parts.json
tap_is "summary of several files equals that of one file" "$(cat parts.json)" "$(jq 'del(.command)' summary.json)"
cp part1.db old.db && python3 - <<'END'
import sqlite3
db = sqlite3.connect("old.db")
db.execute("ALTER TABLE hot_total DROP COLUMN removed")
db.commit()
END
removed=$(trace sql part0.db part2.db 'SELECT sum(removed) FROM hot_total' --json | jq '.[0] | add')
tap_like "hot has the number of lost updates" "$(trace hot part0.db part2.db)" "^$removed updates (.* %) were of such rows\$"
tap_like "and with it a bound of the shares" "$(trace hot part0.db part2.db)" '^  top 1000 .*, at most '
trace hot part0.db old.db part2.db >old.txt
tap_like "with a file of an earlier release the number is a minimum" "$(cat old.txt)" \
    "^at least $removed updates (.* %) were of such rows; records of an earlier release"
tap_is "and shares have no bound" "$(grep -c 'at most' old.txt)" 0
tap_is "sql reads several files" "$(trace sql part0.db part1.db part2.db 'SELECT count(*), sum(n_tx_ns) FROM rpc')" \
    "$(trace sql run.db 'SELECT count(*), sum(n_tx_ns) FROM rpc')"
# shellcheck disable=SC2046 # words
tap_run_fails "too many files: exit status 1" 1 "$WEFT_BIN" trace slow $(yes run.db | head -n 11)
tap_like "the error names weft trace merge" "$(cat run.out)" 'weft trace merge'

# ---- sql ------------------------------------------------------------------------------------------------
tap_is "sql prints a table" "$(trace sql run.db "SELECT key, value FROM meta WHERE key = 'host'")" \
    "key   value
host  nowhere"
tap_is "sql --json prints JSON" "$(trace sql run.db 'SELECT 1 AS a, NULL AS b, 0.5 AS c, char(34, 10) AS d' --json | jq -c .)" \
    '[{"a":1,"b":null,"c":0.5,"d":"\"\n"}]'
tap_is "sql --json of no rows prints []" "$(trace sql run.db 'SELECT * FROM rpc WHERE 0' --json)" "[]"
tap_is "sql --csv prints CSV" "$(trace sql run.db "SELECT 1 AS a, 'b,\"c' AS d" --csv)" 'a,d
1,"b,""c"'
tap_is "sql prints every row" "$(trace sql run.db 'SELECT * FROM rpc' | wc -l)" 20001
tap_like "sql --schema prints the schema" "$(trace sql run.db --schema)" '^CREATE TABLE hot_total('
for question in "DELETE FROM rpc" "DROP TABLE rpc" "CREATE TABLE x(y)" "ATTACH 'x.db' AS x" \
    "PRAGMA journal_mode = WAL" "VACUUM INTO 'x.db'" "SELECT load_extension('x')" \
    "SELECT 1; SELECT 2" "" "SELEC" "SELECT nothing FROM rpc"; do
    tap_run_fails "sql rejects: $question" 1 "$WEFT_BIN" trace sql run.db "$question"
done
# The command line of a run may have any bytes; and a long one is cut, also within a character.
cp run.db bytes.db
python3 - <<'END'
import sqlite3
db = sqlite3.connect("bytes.db")
db.execute("UPDATE meta SET value = CAST(X'77656674E9' AS TEXT) WHERE key = 'host'")
db.execute("UPDATE meta SET value = ? WHERE key = 'command'", ("weft train --data a" + 2000 * "\u20ac",))
db.commit()
END
valid() { python3 -c 'import json, sys; json.loads(sys.stdin.buffer.read().decode()); print("valid")' 2>&1 | tail -n 1; }
tap_is "summary --json is JSON, whatever the run's command line has" "$(trace summary bytes.db --json | valid)" valid
tap_is "figures --json is JSON, whatever the run's command line has" \
    "$(trace figures bytes.db -o bytes --only 8 --json | valid)" valid
esc=$(printf '\033')
python3 - <<'END'
import sqlite3
db = sqlite3.connect("escape.db")
for row in sqlite3.connect("run.db").execute("SELECT sql FROM sqlite_master WHERE type = 'table'"):
    db.execute(row[0])
db.execute("INSERT INTO meta VALUES('schema_version', '1')")
db.execute("CREATE TABLE evil('a\x1b[2Jb' TEXT)")
db.execute("INSERT INTO evil VALUES('c\x1b[1md\x7f\x9be')")
db.commit()
END
tap_is "sql prints no control characters of the file: names, values" \
    "$(trace sql escape.db 'SELECT * FROM evil' | tr -s ' ' | sed 's/ $//')" "a [2Jb
c [1md e"
tap_is "sql --schema prints none" "$(trace sql escape.db --schema | grep -c "$esc")" 0
tap_is "sql creates no file" "$(ls x.db run.db-journal 2>/dev/null)" ""
tap_run_fails "sql without a query: usage error" 2 "$WEFT_BIN" trace sql run.db
tap_run_fails "sql with --csv and --json: usage error" 2 "$WEFT_BIN" trace sql run.db "SELECT 1" --csv --json
tap_is "the database is unchanged" "$(cksum <run.db)" "$before"
chmod 400 run.db
tap_run "a read-only file is read" "$WEFT_BIN" trace summary run.db

# ---- files that are not databases of records
# --------------------------------------------------------------
"$WEFT_BIN" sim incast --senders 2 --rounds 1 --bytes 10000 --trace packets >/dev/null
"$WEFT_BIN" trace summary packets >/dev/null || tap_fail "summary reads packet traces"
: >empty
echo "no database" >text
mkdir folder
mkfifo pipe # has no writer: opening it must not wait
python3 - <<'END'
import sqlite3
db = sqlite3.connect("other.db")
db.execute("CREATE TABLE x(y)")
db.commit()
END
make_db new.db --rpcs 10 && python3 -c "
import sqlite3
db = sqlite3.connect('new.db')
db.execute(\"UPDATE meta SET value = '2' WHERE key = 'schema_version'\")
db.commit()"
for file in packets empty text folder pipe other.db new.db missing; do
    for verb in slow hot; do
        tap_run_fails "$verb rejects: $file" 1 "$WEFT_BIN" trace $verb $file
        tap_like "the error names the file" "$(cat run.out)" "^weft trace $verb: $file: "
    done
done
for file in folder pipe; do
    tap_run_fails "merge rejects: $file" 1 "$WEFT_BIN" trace merge $file -o merged.db
    tap_like "the error says why" "$(cat run.out)" "^weft trace merge: $file: it is not a regular file"
done
tap_like "slow says that a file is a trace of packets" "$(trace slow packets 2>&1)" 'trace of packets'
tap_like "msg says that a file is a database of records" "$(trace msg run.db --msg 1 2>&1)" 'database of records'
tap_run_fails "summary of two packet traces: exit status 1" 1 "$WEFT_BIN" trace summary packets packets
for verb in slow hot sql; do
    tap_run_fails "$verb without a file: usage error" 2 "$WEFT_BIN" trace $verb
    tap_like "$verb's help shows an example" "$(trace $verb --help)" '^  weft '
done

# ---- invalid rows, RPCs that failed
# -------------------------------------------------------------------------
make_db bad.db --rpcs 1000 && python3 - <<'END'
import sqlite3
db = sqlite3.connect("bad.db")
for row, change in enumerate([
        "kind = 0", "kind = 3", "n_tx_ns = -1", "t1_ns = t0_ns - 1", "t0_ns = -9223372036854775807",
        "w_proc_ns = 9223372036854775807", "worker = 4294967296", "server = -1",
        "ps_proc_ns = 'x' || -5", "t1_ns = 9223372036854775807", "rows = -1"]):
    db.execute("UPDATE rpc SET %s WHERE rowid = %d" % (change, row + 1))
db.execute("UPDATE rpc SET status = 4 WHERE rowid > 990")
db.commit()
END
trace summary bad.db --json >bad.json
tap_is "invalid rows and failed RPCs are counted" "$(jq '[.refused, .rpcs, .push.failed + .pull.failed]' -c bad.json)" \
    "[10,990,10]"
tap_like "summary reports invalid rows" "$(trace summary bad.db)" '^REFUSED: 10 invalid rows'
tap_like "summary reports inconsistent rows" "$(trace summary bad.db)" '^INCONSISTENT: '
tap_like "summary reports failed RPCs" "$(trace summary bad.db)" 'more FAILED'

# Control characters of an untrusted file do not reach the terminal.
python3 - <<'END'
import sqlite3
db = sqlite3.connect("bad.db")
db.execute("INSERT OR REPLACE INTO meta VALUES('command', 'weft' || char(27) || '[2Jtrain' || char(10))")
db.commit()
END
tap_like "control characters are replaced by ?" "$(trace summary bad.db)" '^weft[?][[]2Jtrain[?]$'

# Damaged files: a result or an error text, never a crash.
make_db small.db --rpcs 300
tap_is "no damaged file causes a crash" "$(python3 - "$WEFT_BIN" <<'END'
import random, subprocess, sys
good = open("small.db", "rb").read()
rng = random.Random(5)
for i in range(40):
    data = bytearray(good[:rng.randrange(16, len(good))] if i % 4 == 0 else good)
    for _ in range(0 if i % 4 == 0 else 1 + i):
        data[rng.randrange(16, len(data))] = rng.randrange(256)
    open("damaged.db", "wb").write(data)
    verb = ["summary", "slow", "hot"][i % 3]
    status = subprocess.run([sys.argv[1], "trace", verb, "damaged.db"], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE)
    if status.returncode not in (0, 1) or (status.returncode == 1 and not status.stderr):
        print(i, verb, status.returncode, status.stderr)
END
)" ""
tap_done
