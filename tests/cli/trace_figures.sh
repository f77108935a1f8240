#!/bin/sh
# `weft trace figures`: charts and findings of one run and of several runs; figures that the records cannot
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
# Prints the PNG files of DIR that are not 1000 x 600 pictures, then the number of PNG files.
check_pngs() { python3 - "$1" <<'END'
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
tap_run_fails "without gnuplot: exit status 1" 1 env PATH="$tap_tmp/bare" "$WEFT_BIN" trace figures run.db -o bare/out
tap_like "the error names the package" "$(cat run.out)" 'gnuplot-nox'
tap_is "the findings are written" "$(of bare/out 6 verdict)" "agrees"
tap_is "the scripts are written" "$(find bare/out -name '*.gp' | wc -l)" 6

# ---- an input is not overwritten ----
for name in figures.json findings.txt fig4-latency.png fig10-hot-parameters.gp; do
    mkdir -p own
    cp run.db "own/$name"
    tap_run_fails "-o does not write into an input, $name" 1 "$WEFT_BIN" trace figures "own/$name" -o own
    tap_like "the error names it" "$(cat run.out)" "own/$name: it is an input; name another"
    tap_run "the input is unchanged, and the only file" sh -c "cmp run.db 'own/$name' && [ \$(ls own | wc -l) -eq 1 ]"
    rm -r own
done

if ! command -v gnuplot >/dev/null; then
    tap_skip "pictures" "no gnuplot"
    tap_done
fi

# ---- one run ---------------------------------------------------------------------------------------
tap_run "figures of one run succeed" "$WEFT_BIN" trace figures run.db --out one
tap_is "six valid pictures are written" "$(check_pngs one)" 6
tap_is "the files are named after the paper's figures" "$(cd one && echo *.png)" \
    "fig10-hot-parameters.png fig4-latency.png fig5-stages.png fig6-reply-sizes.png fig7a-intervals.png fig7b-active-workers.png"
tap_like "the findings contain the paper's statement" "$(cat one/findings.txt)" '^  paper: latencies have a heavy tail'
tap_like "a figure that one run cannot show is omitted" "$(cat one/findings.txt)" '^figure 9 is omitted: '
tap_like "dropped records are reported" "$(cat one/findings.txt)" '3 records were DROPPED'
tap_is "standard output has the findings" "$(figures run.db -o some --only 8,9)" "$(cat some/findings.txt)"
tap_is "--json prints figures.json" "$(figures run.db -o some --only 8,9 --json)" "$(cat some/figures.json)"
tap_is "--only selects figures" "$(jq -c '[.figures[].figure]' some/figures.json)" '["8","9"]'
tap_is "the picture is labelled with the finding" "$(grep -c "^set label 'here (" one/fig4-latency.gp)" 1
largest=$("$WEFT_BIN" trace summary run.db --json |
    jq -r '.push.stages_us | to_entries | max_by(.value.share) | "push: \(.key)"')
tap_like "figure 5 names the largest stage" "$(of one 5 here)" "^$largest "
tap_is "a cumulative distribution ends at 1" \
    "$(sed -n '/^\$push/,/^EOD/p' one/fig4-latency.gp | tail -n 2 | head -n 1 | cut -d ' ' -f 2)" 1.000000
tap_is "a cumulative distribution does not decrease" "$(sed -n '/^\$push/,/^EOD/p' one/fig4-latency.gp | grep '^[0-9]' |
    awk '$1 < x || $2 < y { print } { x = $1; y = $2 }')" ""
tap_is "with few workers figure 7b is undecided" "$(of one 7b verdict)" "cannot tell"
tap_is "with few parameters figure 10 is undecided" "$(of one 10 verdict)" "cannot tell"

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
INSERT INTO hot_total VALUES(0, 0, 300000, 1, 0);"
figures other.db -o other >/dev/null
tap_is "a heavy tail agrees with the paper" "$(of other 4 verdict)" agrees
tap_is "latency in the worker's queue differs from the paper" "$(of other 5 verdict)" differs
tap_is "replies of one size differ from the paper" "$(of other 6 verdict)" differs
tap_is "many active workers agree with the paper" "$(of other 7b verdict)" agrees
tap_is "hot parameters agree with the paper" "$(of other 10 verdict)" agrees
tap_like "the finding has the share of the hot parameters" "$(of other 10 here)" 'top 20000 get 66.7 % of 300000 updates$'
tap_is "the picture has no bound of exact shares" "$(grep -c 'at most' other/fig10-hot-parameters.gp)" 0
sql other.db "UPDATE hot_total SET exact = 0, removed = -1"
figures other.db -o old --only 10 >/dev/null
tap_like "a bound that is not known is not in the finding" "$(of old 10 here)" 'top 20000 get 66.7 % of 300000 updates at least$'
tap_is "nor in the picture" "$(grep -c 'at most' old/fig10-hot-parameters.gp)" 0
sql other.db "UPDATE hot_total SET removed = 30000"
figures other.db -o bounded --only 10 >/dev/null
tap_like "a known bound is in the finding" "$(of bounded 10 here)" 'updates at least, 76.7 % at most$'
tap_is "and in the picture" "$(grep -c 'at most' bounded/fig10-hot-parameters.gp)" 2

# ---- several runs ------------------------------------------------------------------------------------
for workers in 4 16 64; do
    make_db s$workers.db --rpcs 1000 --workers $workers
    sql s$workers.db "UPDATE process SET wall_ns = 1000000000;
        UPDATE process SET cpu_ns = 500000000 / $workers WHERE role = 'worker';
        UPDATE process SET cpu_ns = 1000000 * $workers WHERE role = 'server'"
done
tap_run "figures of three runs succeed" "$WEFT_BIN" trace figures s64.db s4.db s16.db -o several --only 6,8,9
tap_is "five valid pictures are written" "$(check_pngs several)" 5
tap_is "decreasing utilisation agrees with the paper" "$(of several 8 verdict)" agrees
tap_like "runs are ordered by the number of workers" "$(of several 8 here)" '^from 4 workers and 3 servers to 64 and 3'
tap_is "a cost that grows agrees with the paper" "$(of several 9 verdict)" agrees
tap_like "the finding has the factor of growth" "$(of several 9 here)" '(16.00 times: it grows)'
for workers in 4 16 64; do
    cp s$workers.db t$workers.db
    sql t$workers.db "UPDATE meta SET value = 'weft load --transport tcp' WHERE key = 'command'"
    sql s$workers.db "UPDATE process SET cpu_ns = 9000000 WHERE role = 'server'"
done
figures s4.db s16.db s64.db t4.db t16.db t64.db -o both --only 9 >/dev/null
tap_is "a constant cost differs from the paper" "$(of both 9 verdict)" differs
tap_like "weft's and TCP's costs are shown together" "$(of both 9 here)" '^weft: .*(1.00 times: flat).*; tcp: .*(16.00 times: it grows)'
for workers in 4 64; do
    sql t$workers.db "DELETE FROM process WHERE role = 'worker'"
done
tap_like "figure 9 is omitted if servers and workers are one process" \
    "$(figures t4.db t64.db -o mixed --only 8,9)" '^figure 9 is omitted: .*weft load --local'
tap_like "trace summary reports that, too" "$("$WEFT_BIN" trace summary t4.db)" '^server CPU: .*workers'
mkdir twin && cp s4.db twin/s4.db
figures s4.db twin/s4.db -o twins --only 5 >/dev/null
tap_is "two files of the same name have two pictures" "$(check_pngs twins)" 2

# ---- names, empty runs, error texts
# ----------------------------------------------------------------------
cp run.db "it's \"\`touch ran\`\" \$(touch ran).db"
sql "it's \"\`touch ran\`\" \$(touch ran).db" "UPDATE meta SET value = 'x'' . system(''touch ran'') . \"
\`touch ran\`' WHERE key = 'command'"
tap_run "file names and commands with shell characters succeed" "$WEFT_BIN" trace figures it*.db run.db -o names --only 4
tap_is "they have pictures" "$(check_pngs names)" 2
tap_is "no command in them is executed" "$(find . -name ran)" ""
make_db empty.db --rpcs 1
sql empty.db "DELETE FROM rpc; DELETE FROM served; DELETE FROM active; DELETE FROM process;
    DELETE FROM hot; DELETE FROM hot_total"
tap_run "a run without RPCs succeeds" "$WEFT_BIN" trace figures empty.db -o empty
tap_is "it has no pictures" "$(check_pngs empty)" 0
tap_is "each figure is omitted with a reason" "$(grep -c 'is omitted: ..*' empty/findings.txt)" 10
tap_run_fails "a missing file: exit status 1" 1 "$WEFT_BIN" trace figures missing.db -o x
tap_run_fails "an output directory that cannot be created: exit status 1" 1 "$WEFT_BIN" trace figures run.db -o no/such/folder
tap_run_fails "no file: usage error" 2 "$WEFT_BIN" trace figures
tap_run_fails "an unknown figure: usage error" 2 "$WEFT_BIN" trace figures run.db --only 4,11
tap_like "help shows an example" "$(figures --help)" '^  weft '
tap_done
