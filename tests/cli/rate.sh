#!/bin/sh
# The default learning rate of `--format libsvm`: derived from the data, printed and in the report,
# and the same for manually started workers; --lr overrides it. Data: a small synthetic set like
# TF-IDF, and Reuters-21578, which is not part of the repository.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_JOB_KEY
cd "$tap_tmp" || exit

# made <scale> <file>: 4,000 rows of 12 ids out of 300, rows of length `scale`; an odd id indicates
# a positive row, an even one a negative row.
made() {
    awk -v scale="$1" 'BEGIN {
        srand(5)
        for (r = 0; r < 4000; r++) {
            split("", value); sum = 0; length2 = 0
            for (k = 0; k < 12; k++) {
                u = rand(); id = int(u * u * 300)
                value[id] = 1 + rand()
            }
            for (id in value) { sum += id % 2 ? value[id] : -value[id]; length2 += value[id] ^ 2 }
            line = sum + 4 * (rand() - 0.5) > 0 ? "1" : "0"
            for (id = 0; id < 300; id++)
                if (id in value) line = line sprintf(" %d:%.5g", id, scale * value[id] / sqrt(length2))
            print line
        }
    }' >"$2"
}

# train <name> <options...>: the report is <name>.json, the progress <name>.out.
train() {
    name=$1
    shift
    tap_run "$name: train $*" sh -c '"$0" "$@" >'"$name.out" "$WEFT_BIN" train --format libsvm \
        --servers 2 --report "$tap_tmp/$name.json" "$@"
}

# holds <what> <name> <jq condition>
holds() {
    if jq -e "$3" "$2.json" >jq.out 2>&1; then
        tap_pass "$2: $1: $(jq -c '[.learning_rate, .test_auc, .test_logloss]' "$2.json")"
    else
        tap_fail "$2: $1" "$3
$(jq -c 'del(.counters, .latency_us)' "$2.json" 2>&1)"
    fi
}

made 1 small
train found --data "$PWD/small" --batch 64
holds "the rate from the data is at least 0.8, and the AUC above 0.96" found '.learning_rate >= 0.8 and .learning_rate_rows == .rows_train and
    .test_auc > 0.96'
tap_like "the output has the rate" "$(cat found.out)" "^learning rate $(jq -r .learning_rate found.json), found on"
train given --data "$PWD/small" --batch 64 --lr 0.1
holds "--lr has precedence" given '.learning_rate == 0.1 and .learning_rate_rows == 0 and .test_auc < 0.95'
tap_is "no rate is computed then" "$(grep -c 'learning rate' given.out)" 0
made 0.1 smaller
train smaller --data "$PWD/smaller" --batch 64 --mode ssp:1 --workers 3 --loss-bound 0.1 --inject-loss 0.05
holds "values of a tenth, ssp and loss: the rate is above 12" smaller '.learning_rate > 12 and .test_auc > 0.9'
train factors --data "$PWD/small" --model fm --factors 2 --epochs 1
holds "other models keep the default rate" factors '.learning_rate < 0.21 and .learning_rate > 0.19 and
    .learning_rate_rows == 0'

# ---- manually started workers: the same rate without communication ----
"$WEFT_BIN" keygen job.key >/dev/null
port=$(tap_port)
key="--key-file $PWD/job.key"
# shellcheck disable=SC2086
"$WEFT_BIN" server $key --port "$port" --workers 3 >server.out 2>&1 &
server=$!
tap_at_exit 'kill $server 2>/dev/null; wait'
worker() { # worker <rank> <file>
    # shellcheck disable=SC2086
    "$WEFT_BIN" worker $key --servers "127.0.0.1:$port" --workers 3 --rank "$1" --format libsvm \
        --data "$PWD/$2" --epochs 1 --batch 64 >"worker$1.out" 2>"worker$1.err"
}
worker 0 small & first=$!
worker 1 small & second=$!
tap_until grep -q '"ready"' worker0.out
tap_until grep -q '"ready"' worker1.out
tap_like "a manually started worker computes the rate" "$(cat worker0.out)" '"learning_rate_rows":[1-9]'
tap_is "two workers with the same data compute the same rate" "$(sed -n 's/.*"ready".*"learning_rate":\([0-9.]*\).*/\1/p' worker0.out)" \
    "$(sed -n 's/.*"ready".*"learning_rate":\([0-9.]*\).*/\1/p' worker1.out)"
worker 2 smaller
tap_is "a worker with other data is rejected" $? 1
tap_like "its error has the rate" "$(cat worker2.err)" 'learning rate [0-9.]*; .*same --lr'
worker 2 small
tap_is "with the same data it trains" $? 0
wait "$first"
tap_is "the other workers exit with 0" "$?" 0
wait "$second"

# ---- Reuters-21578: is a story about an acquisition? ----
found=${WEFT_DATA_DIR:-/nonexistent}/reuters21578/reuters21578-sgm.tar.zst
if [ ! -f "$found" ] || ! command -v zstd >/dev/null; then
    tap_skip "Reuters-21578" "no zstd, or no reuters21578/reuters21578-sgm.tar.zst in \$WEFT_DATA_DIR"
    tap_done
    exit 0
fi
# One line per document: the label, then its words. Rows are (1 + log tf) log(N / df), of length 1.
zstd -dc "$found" | tar -xO --wildcards '*.sgm' | LC_ALL=C awk '
    /<REUTERS/ { label = 0; words = ""; in_text = 0 }
    /<TOPICS>/ { label = /<D>acq<\/D>/ }
    /<TEXT/ { in_text = 1 }
    in_text { line = tolower($0); gsub(/<[^>]*>|&[a-z#0-9]*;|[^a-z]/, " ", line); words = words line " " }
    /<\/REUTERS>/ { print label, words }' >words
LC_ALL=C awk '
    FNR == NR {
        n++
        split("", seen)
        for (i = 2; i <= NF; i++)
            if (!($i in seen)) {
                seen[$i]
                df[$i]++
                if (!($i in id)) id[$i] = ++ids
            }
        next
    }
    {
        split("", tf)
        length2 = 0
        for (i = 2; i <= NF; i++) tf[$i]++
        for (w in tf) {
            tf[w] = (1 + log(tf[w])) * log(n / df[w])
            length2 += tf[w] ^ 2
        }
        for (w in tf) if (tf[w] > 0) printf "%d %d %d:%.5g\n", FNR, id[w], id[w], tf[w] / sqrt(length2)
        print FNR, 0, $1
    }' words words | sort -k1,1n -k2,2n | awk '
    $2 == 0 { printf "%s%s", (NR > 1 ? "\n" : ""), $3; next }
    { printf " %s", $3 }
    END { print "" }' >reuters
tap_is "there is one row for each document" "$(wc -l <reuters)" 21578
train reuters --data "$PWD/reuters"
holds "the rate is above 1, and the AUC above 0.985" reuters '.learning_rate > 1 and .test_auc > 0.985'
train reuters_lossy --data "$PWD/reuters" --loss-bound 0.1 --inject-loss 0.1 --mode asp
holds "with losses the AUC is above 0.98" reuters_lossy '.learning_rate > 1 and .test_auc > 0.98'
train reuters_before --data "$PWD/reuters" --lr 0.1
holds "with a rate of 0.1 the AUC is below 0.95" reuters_before '.test_auc < 0.95'
tap_done
