#!/bin/sh
# `weft sim compression` on a small set of documents: its output, its chart, and wrong usage.
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

tap_run "several numbers of topics" json
tap_run "their figures" jq -e '(.points | length) == 8 and .workers == 4 and ([.points[].rows.ratio] | unique | length) == 1 and
    all(.points[]; .rows.ratio >= 1 and .rows.ratio <= 4 and .entries.ratio >= 1 and .entries.ratio <= 4 and
        .rows.separate_bytes / .rows.aggregate_bytes == .rows.ratio and
        .entries.separate_bytes <= .rows.separate_bytes * 2)' json
mv json first
tap_run "the same again" json
tap_run "are the same" cmp first json
tap_run "one number of topics" json --topics 20
tap_run "has one point" jq -e '(.points | length) == 1 and .points[0].topics == 20' json
tap_like "for people, too" "$(compression --topics 20)" '^ *20  *[0-9.]*'
if command -v gnuplot >/dev/null; then
    tap_run "a picture" compression --picture picture.png
    tap_is "is a PNG" "$(head -c 4 picture.png | tail -c 3)" PNG
else
    tap_skip "a picture" "no gnuplot"
fi
tap_run_fails "no such data" 1 compression --data ./none.txt
tap_run_fails "too many topics" 2 compression --topics 256
echo "no documents" >bad.txt
tap_run_fails "data that is no bag of words" 1 compression --data ./bad.txt

tap_done
