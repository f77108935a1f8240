#!/bin/sh
# MovieLens latest-small, not part of the repository, over the fabric: matrix factorization against the
# model of user and item means, factorization machine against the linear model, in every mode, with
# bound 0 and with a bound (0.35 as in [apnet19] for MF, 0.10 for FM) under as much loss.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

found=
for file in "${WEFT_DATA_DIR:-/nonexistent}/movielens-latest-small/ratings.csv"*; do
    [ -f "$file" ] && found=$file
done
if [ -z "$found" ]; then
    tap_skip "MovieLens latest-small" "no movielens-latest-small/ratings.csv in \$WEFT_DATA_DIR"
    tap_done
    exit 0
fi

# train <name> <model> <options...>: the report is $tap_tmp/<name>.json.
train() {
    name=$1
    model=$2
    shift 2
    tap_run "$name: train --model $model $*" "$WEFT_BIN" train --model "$model" --format movielens \
        --data "$found" --workers 4 --servers 2 "$@" --report "$tap_tmp/$name.json"
}

# holds <what> <name> <jq condition>
holds() {
    if jq -e "$3" "$tap_tmp/$2.json" >"$tap_tmp/jq.out" 2>&1; then
        tap_pass "$2: $1: $(jq -c '[.test_rmse, .test_auc, .delivered_fraction]' "$tap_tmp/$2.json")"
    else
        tap_fail "$2: $1" "$3
$(jq -c 'del(.counters, .latency_us)' "$tap_tmp/$2.json" 2>&1)"
    fi
}

# In asp the order of pushes depends on the timing of the machine, and so does the epoch in which a model
# of 12 epochs begins to overfit. Therefore asp is judged by its best epoch, the other modes by the last.
# means is the test RMSE of the model of user and item means, regularised: tests/unit/test_ml_latest_small.c
# computes it.
means=0.8591
for mode in bsp ssp:2 asp; do
    rmse=.test_rmse
    [ "$mode" != asp ] || rmse='(.epoch_test_rmse | min)'
    train "mf-$mode-whole" mf --mode "$mode" --loss-bound 0
    train "mf-$mode-lossy" mf --mode "$mode" --loss-bound 0.35 --inject-loss 0.35
    for kind in whole lossy; do
        holds "at most 0.875, and 0.003 below the model of means" "mf-$mode-$kind" \
            ".test_rmse <= 0.875 and $rmse <= $means - 0.003 and .messages_short == 0"
    done
done

train linear lr --loss-bound 0 --lr 0.3 --l2 0.03 --epochs 40
linear=$(jq .test_auc "$tap_tmp/linear.json")
for mode in bsp ssp:2 asp; do
    train "fm-$mode-whole" fm --mode "$mode" --loss-bound 0
    train "fm-$mode-lossy" fm --mode "$mode" --loss-bound 0.10 --inject-loss 0.10
    for kind in whole lossy; do
        holds "at least 0.78, and 0.005 above the linear model" "fm-$mode-$kind" \
            ".test_auc >= 0.78 and .test_auc >= $linear + 0.005 and .messages_short == 0"
    done
done
tap_done
