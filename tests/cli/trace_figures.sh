#!/bin/sh
# `weft trace figures`: charts and findings of one run and of several; figures that the records cannot
# show are omitted with a reason.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
make_db() { "$WEFT_SOURCE_ROOT/tests/cli/records_make.py" "$@"; }
sql() { python3 -c "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript(sys.argv[2])
db.commit()" "$@"; }
figures() { "$WEFT_BIN" trace figures "$@"; }
# of DIR N FILTER: a member of a figure
of() { jq -r --arg n "$2" "[.figures[] | select(.figure == \$n)][0].$3" "$1/figures.json"; }
# Files of DIR that are not PNGs of 1000 x 600.
no_pngs() { python3 - "$1" <<'END'
import glob, struct, sys
names = glob.glob(sys.argv[1] + "/*.png")
for name in names:
    head = open(name, "rb").read(24)
    if head[:8] != b"\x89PNG\r\n\x1a\n" or struct.unpack(">II", head[16:24]) != (1000, 600):
        print(name)
print(len(names))
END
}

make_db run.db --rpcs 6000 --slow n_tx --dropped 3 || exit 1

# Without gnuplot the text and the scripts are still written.
mkdir bare
tap_run_fails "without gnuplot" 1 env PATH="$tap_tmp/bare" "$WEFT_BIN" trace figures run.db -o bare/out
tap_like "it says what to install" "$(cat run.out)" 'gnuplot-nox'
tap_is "and has the findings" "$(of bare/out 6 verdict)" "agrees"
tap_is "and the scripts" "$(find bare/out -name '*.gp' | wc -l)" 6

if ! command -v gnuplot >/dev/null; then
    tap_skip "pictures" "no gnuplot"
    tap_done
fi

# ---- one run ---------------------------------------------------------------------------------------
tap_run "of one run" "$WEFT_BIN" trace figures run.db --out one
tap_is "six pictures" "$(no_pngs one)" 6
tap_is "named by the paper's numbers" "$(cd one && echo *.png)" \
    "fig10-hot-parameters.png fig4-latency.png fig5-stages.png fig6-reply-sizes.png fig7a-intervals.png fig7b-active-workers.png"
tap_like "both findings in words" "$(cat one/findings.txt)" '^  paper: latencies have a heavy tail'
tap_like "what one run cannot show is left out" "$(cat one/findings.txt)" '^figure 9 is omitted: '
tap_like "dropped records are said" "$(cat one/findings.txt)" '3 records were DROPPED'
tap_is "on standard output the same" "$(figures run.db -o some --only 8,9)" "$(cat some/findings.txt)"
tap_is "as JSON the same" "$(figures run.db -o some --only 8,9 --json)" "$(cat some/figures.json)"
tap_is "only those asked for" "$(jq -c '[.figures[].figure]' some/figures.json)" '["8","9"]'
tap_is "the words are on the picture, too" "$(grep -c "^set label 'here (" one/fig4-latency.gp)" 1
largest=$("$WEFT_BIN" trace summary run.db --json |
    jq -r '.push.stages_us | to_entries | max_by(.value.share) | "push: \(.key)"')
tap_like "figure 5 names the largest stage" "$(of one 5 here)" "^$largest "
tap_is "a cumulative distribution ends at 1" \
    "$(sed -n '/^\$push/,/^EOD/p' one/fig4-latency.gp | tail -n 2 | head -n 1 | cut -d ' ' -f 2)" 1.000000
tap_is "it never falls" "$(sed -n '/^\$push/,/^EOD/p' one/fig4-latency.gp | grep '^[0-9]' |
    awk '$1 < x || $2 < y { print } { x = $1; y = $2 }')" ""
tap_is "few workers cannot tell of many" "$(of one 7b verdict)" "cannot tell"
tap_is "neither can few parameters" "$(of one 10 verdict)" "cannot tell"

# The values that determine the findings.
make_db other.db --rpcs 2000 --workers 64
sql other.db "
UPDATE active SET workers = 60;
UPDATE rpc SET w_queue_ns = 0;
UPDATE rpc SET w_queue_ns = 90000000 WHERE rowid % 40 = 0;
UPDATE rpc SET reply_bytes = 24;
DELETE FROM hot; DELETE FROM hot_total;
WITH RECURSIVE k(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM k WHERE i < 20099)
INSERT INTO hot SELECT 0, 0, i, 10, 0 FROM k;
INSERT INTO hot_total VALUES(0, 0, 300000, 1);"
figures other.db -o other >/dev/null
tap_is "a heavy tail" "$(of other 4 verdict)" agrees
tap_is "time in the worker's queue" "$(of other 5 verdict)" differs
tap_is "replies of one size" "$(of other 6 verdict)" differs
tap_is "many active workers" "$(of other 7b verdict)" agrees
tap_is "hot parameters" "$(of other 10 verdict)" agrees
tap_like "counted" "$(of other 10 here)" 'top 20000 get 66.7 % of 300000 updates$'

# ---- several runs ------------------------------------------------------------------------------------
for workers in 4 16 64; do
    make_db s$workers.db --rpcs 1000 --workers $workers
    sql s$workers.db "UPDATE process SET wall_ns = 1000000000;
        UPDATE process SET cpu_ns = 500000000 / $workers WHERE role = 'worker';
        UPDATE process SET cpu_ns = 1000000 * $workers WHERE role = 'server'"
done
tap_run "of three runs" "$WEFT_BIN" trace figures s64.db s4.db s16.db -o several --only 6,8,9
tap_is "some of each, some of all" "$(no_pngs several)" 5
tap_is "utilisation over scale" "$(of several 8 verdict)" agrees
tap_like "in order" "$(of several 8 here)" '^from 4 workers and 3 servers to 64 and 3'
tap_is "cost that grows" "$(of several 9 verdict)" agrees
tap_like "so many times" "$(of several 9 here)" '(16.00 times: it grows)'
for workers in 4 16 64; do
    cp s$workers.db t$workers.db
    sql t$workers.db "UPDATE meta SET value = 'weft load --transport tcp' WHERE key = 'command'"
    sql s$workers.db "UPDATE process SET cpu_ns = 9000000 WHERE role = 'server'"
done
figures s4.db s16.db s64.db t4.db t16.db t64.db -o both --only 9 >/dev/null
tap_is "cost that does not" "$(of both 9 verdict)" differs
tap_like "beside TCP's" "$(of both 9 here)" '^weft: .*(1.00 times: flat).*; tcp: .*(16.00 times: it grows)'
for workers in 4 64; do
    sql t$workers.db "DELETE FROM process WHERE role = 'worker'"
done
tap_like "CPU of servers and workers in one process tells nothing" \
    "$(figures t4.db t64.db -o mixed --only 8,9)" '^figure 9 is omitted: .*weft load --local'
tap_like "which summary says, too" "$("$WEFT_BIN" trace summary t4.db)" '^server CPU: .*workers'
mkdir twin && cp s4.db twin/s4.db
figures s4.db twin/s4.db -o twins --only 5 >/dev/null
tap_is "two files of one name" "$(no_pngs twins)" 2

# ---- names, empty runs, error texts
# ----------------------------------------------------------------------
cp run.db "it's \"\`touch ran\`\" \$(touch ran).db"
sql "it's \"\`touch ran\`\" \$(touch ran).db" "UPDATE meta SET value = 'x'' . system(''touch ran'') . \"
\`touch ran\`' WHERE key = 'command'"
tap_run "any name, any command" "$WEFT_BIN" trace figures it*.db run.db -o names --only 4
tap_is "are drawn" "$(no_pngs names)" 2
tap_is "and run nothing" "$(find . -name ran)" ""
make_db empty.db --rpcs 1
sql empty.db "DELETE FROM rpc; DELETE FROM served; DELETE FROM active; DELETE FROM process;
    DELETE FROM hot; DELETE FROM hot_total"
tap_run "a run without RPCs" "$WEFT_BIN" trace figures empty.db -o empty
tap_is "has no pictures" "$(no_pngs empty)" 0
tap_is "and a reason for each" "$(grep -c 'is omitted: ..*' empty/findings.txt)" 10
tap_run_fails "no such file" 1 "$WEFT_BIN" trace figures missing.db -o x
tap_run_fails "no such folder" 1 "$WEFT_BIN" trace figures run.db -o no/such/folder
tap_run_fails "no file" 2 "$WEFT_BIN" trace figures
tap_run_fails "no figure of the paper's" 2 "$WEFT_BIN" trace figures run.db --only 4,11
tap_like "help shows an example" "$(figures --help)" '^  weft '
tap_done
