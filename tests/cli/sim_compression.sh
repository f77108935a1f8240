#!/bin/sh
# `weft sim compression` on a small set of documents: report, picture, usage errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1

# 80 documents of 24 tokens over 40 words.
awk 'BEGIN { print 80; print 40; print 1920; seed = 7
    for (d = 1; d <= 80; d++) for (t = 0; t < 24; t++) {
        seed = (seed * 1103515245 + 12345) % 2147483648
        print d, 1 + int(seed / 65536) % 40, 1 } }' >docword.txt

compression() { "$WEFT_BIN" sim compression --data ./docword.txt --workers 4 --batch 4 --epochs 2 "$@"; }
json() { compression --json "$@" >json; }

tap_run "sim compression --json succeeds" json
tap_run "the report has a point for each number of topics, with ratios from 1 to 4" jq -e '(.points | length) == 8 and .workers == 4 and ([.points[].rows.ratio] | unique | length) == 1 and
    all(.points[]; .rows.ratio >= 1 and .rows.ratio <= 4 and .entries.ratio >= 1 and .entries.ratio <= 4 and
        .rows.separate_bytes / .rows.aggregate_bytes == .rows.ratio and
        .entries.separate_bytes <= .rows.separate_bytes * 2)' json
mv json first
tap_run "a second run succeeds" json
tap_run "both runs have the same report" cmp first json
tap_run "sim compression --topics 20 succeeds" json --topics 20
tap_run "the report has one point" jq -e '(.points | length) == 1 and .points[0].topics == 20' json
tap_like "the table has a row for 20 topics" "$(compression --topics 20)" '^ *20  *[0-9.]*'
if command -v gnuplot >/dev/null; then
    tap_run "--picture succeeds" compression --picture picture.png
    tap_is "the picture is a PNG file" "$(head -c 4 picture.png | tail -c 3)" PNG
else
    tap_skip "--picture succeeds" "no gnuplot"
fi
tap_run_fails "a missing data file is rejected" 1 compression --data ./none.txt
tap_run_fails "too many topics are rejected" 2 compression --topics 256
echo "no documents" >bad.txt
tap_run_fails "a file that is not a bag of words is rejected" 1 compression --data ./bad.txt

tap_done
