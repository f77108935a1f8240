#!/bin/sh
# `weft train` with models that have factors, on synthetic data with a known optimum (planted.h), in
# every mode, with bound 0 and with the bound that [apnet19] gives for matrix factorization under as
# much loss. Models without shipped data are in movielens.sh.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
# Models do not depend on the mode, which cli_train runs: one of them under a sanitizer.
modes="bsp ssp:2 asp" lda_modes="bsp ssp:2 asp"
[ "$WEFT_BUILD_NAME" = release ] || modes=bsp lda_modes=asp

"$WEFT_PLANTED_BIN" ratings 1 >"$tap_tmp/ratings.csv"
"$WEFT_PLANTED_BIN" clicks 1 >"$tap_tmp/clicks.csv"

# train <name> <model> <file> <options...>: the report is $tap_tmp/<name>.json.
train() {
    name=$1
    model=$2
    file=$3
    shift 3
    tap_run "$name: train --model $model $*" "$WEFT_BIN" train --model "$model" --format movielens \
        --data "$tap_tmp/$file" --workers 4 --servers 2 --l2 0.01 --epochs 8 "$@" \
        --report "$tap_tmp/$name.json"
    cp "$tap_tmp/run.out" "$tap_tmp/$name.log"
}

# holds <what> <name> <jq condition>
holds() {
    if jq -e "$3" "$tap_tmp/$2.json" >"$tap_tmp/jq.out" 2>&1; then
        tap_pass "$2: $1"
    else
        tap_fail "$2: $1" "$3
$(jq -c 'del(.counters, .latency_us)' "$tap_tmp/$2.json" 2>&1)"
    fi
}

# ---- ratings: the noise has an RMSE of 0.2309; without factors 0.38 remains ----
for mode in $modes; do
    slack=15
    # ASP does not synchronize workers: on a busy machine the last one may train its share alone.
    [ "$mode" = asp ] && slack=40
    train "mf-$mode-whole" mf ratings.csv --factors 4 --mode "$mode" --loss-bound 0
    holds "RMSE within $slack % of the noise" "mf-$mode-whole" \
        ".test_rmse > 0.2309 * 0.97 and .test_rmse < 0.2309 * (1 + $slack / 100) and .delivered_fraction == 1"
    train "mf-$mode-lossy" mf ratings.csv --factors 4 --mode "$mode" --loss-bound 0.35 \
        --inject-loss 0.35
    holds "RMSE within $slack % of the noise" "mf-$mode-lossy" \
        ".test_rmse < 0.2309 * (1 + $slack / 100) and .delivered_fraction < 1 and .messages_short == 0"
done
holds "the report has the figures of a model of ratings" mf-bsp-whole '.model == "mf" and .factors == 4 and
    .init_scale == 0.05 and .l2 == 0.01 and .features == 501 and .rows_train + .rows_test == 40000 and
    (.train_mse | length == 8 and .[7] < .[0]) and .epoch_test_rmse[7] == .test_rmse and
    (has("test_auc") or has("test_logloss") or has("train_logloss") or has("epoch_test_auc") | not)'
tap_is "the output has a line for each epoch" \
    "$(grep -c '^epoch [1-8]/8 .*loss .*RMSE .*samples/s .*delivered' "$tap_tmp/mf-bsp-whole.log")" 8

# ---- clicks: the planted margin has an AUC of 0.842; a linear model 0.534 ----
for mode in $modes; do
    least=0.822
    [ "$mode" = asp ] && least=0.76
    train "fm-$mode-whole" fm clicks.csv --factors 4 --mode "$mode" --loss-bound 0
    holds "AUC at least $least" "fm-$mode-whole" \
        ".test_auc > $least and .test_auc < 0.848 and .delivered_fraction == 1"
    # More factors than were planted: with fewer than ten chunks per message the bound allows no
    # loss.
    train "fm-$mode-lossy" fm clicks.csv --factors 32 --l2 0.03 --mode "$mode" --loss-bound 0.10 \
        --inject-loss 0.10
    holds "AUC at least $least" "fm-$mode-lossy" \
        ".test_auc > $least and .delivered_fraction < 1 and .messages_short == 0"
done
train linear lr clicks.csv --loss-bound 0
holds "a linear model has an AUC below 0.60" linear '.test_auc < 0.60 and (has("factors") | not)'

# ---- categorical features ----
awk 'BEGIN { for (i = 0; i < 900; i++) printf "%d\t%s\t%d\t\t%d\n", (i % 2) == (i % 3 == 0),
    i % 2 ? "odd" : "even", i % 3, i % 50 }' >"$tap_tmp/xor.tsv"
tap_run "fm trains on a tsv file" "$WEFT_BIN" train --model fm --format tsv --data "$tap_tmp/xor.tsv" \
    --factors 4 --workers 2 --servers 1 --batch 32 --epochs 30 --l2 0 --report "$tap_tmp/xor.json"
holds "factors learn the product of two features" xor '.test_auc > 0.999'

# ---- a saved model ----
saved=$tap_tmp/model.safetensors
train saved mf ratings.csv --factors 4 --loss-bound 0 --save "$saved"
tap_run "weft eval succeeds" sh -c '"$WEFT_BIN" eval --model-file "$0" --data "$1" --json >"$2"' "$saved" \
    "$tap_tmp/ratings.csv" "$tap_tmp/eval.json"
rmse=$(jq .test_rmse "$tap_tmp/saved.json")
holds "eval computes the training's test RMSE" eval ".rmse == $rmse and .model == \"mf\" and
    .features_unknown == 0 and .rows == \"test\""
tap_run "weft predict succeeds" sh -c '"$WEFT_BIN" predict --model-file "$0" --data "$1" --rows all >"$2"' "$saved" \
    "$tap_tmp/ratings.csv" "$tap_tmp/predicted"
tap_is "predict prints a line for each row" "$(wc -l <"$tap_tmp/predicted" | tr -d ' ')" 40000
tap_is "the RMSE of all predictions is below 0.25" "$(paste -d, "$tap_tmp/predicted" "$tap_tmp/ratings.csv" |
    awk -F, '{ s += ($1 - $4) ^ 2 } END { print (sqrt(s / NR) < 0.25) }')" 1
printf '999999,1,3,0\n1,999999,3,0\n' >"$tap_tmp/unknown.csv"
tap_run "eval with unknown users and items succeeds" sh -c '"$WEFT_BIN" eval --model-file "$0" --data "$1" \
    --rows all --json >"$2"' "$saved" "$tap_tmp/unknown.csv" "$tap_tmp/unknown.json"
holds "unknown features are counted, and the RMSE is below 1.5" unknown '.features_unknown == 2 and .rmse < 1.5'
train saved-fm fm clicks.csv --factors 4 --loss-bound 0 --save "$tap_tmp/fm.safetensors"
tap_run "predict of clicks succeeds" "$WEFT_BIN" predict --model-file "$tap_tmp/fm.safetensors" \
    --data "$tap_tmp/clicks.csv" --rows test --output "$tap_tmp/clicks.out"
cp "$tap_tmp/clicks.csv" "$tap_tmp/before.csv"
cp "$tap_tmp/fm.safetensors" "$tap_tmp/before.safetensors"
for file in clicks.csv fm.safetensors; do
    tap_run_fails "predict does not write into its input $file" 1 "$WEFT_BIN" predict \
        --model-file "$tap_tmp/fm.safetensors" --data "$tap_tmp/clicks.csv" --output "$tap_tmp/$file"
    tap_like "the error says so" "$(cat "$tap_tmp/run.out")" "$file: it is an input"
    tap_run "the input is unchanged" cmp "$tap_tmp/$file" "$tap_tmp/before.${file#*.}"
done
for option in report save records; do
    tap_run_fails "train --$option does not replace the data" 1 "$WEFT_BIN" train --model fm --format movielens \
        --data "$tap_tmp/clicks.csv" --epochs 1 "--$option" "$tap_tmp/clicks.csv"
    tap_like "the error says so" "$(cat "$tap_tmp/run.out")" "clicks.csv: it is an input"
    tap_run "the data are unchanged" cmp "$tap_tmp/clicks.csv" "$tap_tmp/before.csv"
done
tap_is "its predictions are probabilities" "$(awk '$1 < 0 || $1 > 1 { bad++ } END { print (NR > 7000), bad + 0 }' \
    "$tap_tmp/clicks.out")" "1 0"

bytes=$(wc -c <"$saved" | tr -d ' ')
head -c $((bytes - 1)) "$saved" >"$tap_tmp/cut"
{ head -c $((bytes - 9)) "$saved"; printf 'X'; tail -c 8 "$saved"; } >"$tap_tmp/damaged"
sed 's/"weft_model":"1"/"weft_model":"2"/' "$saved" >"$tap_tmp/later"
: >"$tap_tmp/empty"
for file in cut damaged later empty ratings.csv none; do
    tap_run_fails "eval rejects a model file: $file" 1 "$WEFT_BIN" eval \
        --model-file "$tap_tmp/$file" --data "$tap_tmp/ratings.csv"
    tap_like "the error names the file" "$(cat "$tap_tmp/run.out")" "^weft eval: $tap_tmp/$file: "
done
# ---- a checkpoint as a model: two shards, the newest a delta ----
train check mf ratings.csv --factors 4 --loss-bound 0 --checkpoint "$tap_tmp/ckpt" \
    --checkpoint-every 40 --checkpoint-full-every 4
tap_run "eval of a checkpoint succeeds" sh -c '"$WEFT_BIN" eval --model-file "$0" --model mf \
    --format movielens --data "$1" --json >"$2"' "$tap_tmp/ckpt" "$tap_tmp/ratings.csv" \
    "$tap_tmp/eval.json"
rmse=$(jq .test_rmse "$tap_tmp/check.json")
holds "eval of the checkpoint computes the training's test RMSE" eval "(.rmse - $rmse | fabs) < 1e-9 and .features_unknown == 0"
tap_run "predict from a checkpoint succeeds" "$WEFT_BIN" predict --model-file "$tap_tmp/ckpt" --model mf \
    --format movielens --data "$tap_tmp/ratings.csv" --rows test --output "$tap_tmp/ckpt.out"
tap_run_fails "eval of a checkpoint with another model fails" 1 "$WEFT_BIN" eval --model-file "$tap_tmp/ckpt" \
    --format movielens --data "$tap_tmp/ratings.csv"
tap_like "the error names --model" "$(cat "$tap_tmp/run.out")" 'have 5 floats, which does not match lr; .*--model'
tap_is "the error is printed once" "$(grep -c '^weft eval:' "$tap_tmp/run.out")" 1
tap_run_fails "eval of a checkpoint without --format fails" 1 "$WEFT_BIN" eval --model-file "$tap_tmp/ckpt" --model mf \
    --data "$tap_tmp/ratings.csv"
mkdir "$tap_tmp/nothing"
tap_run_fails "eval of a directory without a checkpoint fails" 1 "$WEFT_BIN" eval --model-file "$tap_tmp/nothing" --model mf \
    --format movielens --data "$tap_tmp/ratings.csv"
tap_like "the error names the directory" "$(cat "$tap_tmp/run.out")" "^weft eval: $tap_tmp/nothing: it holds no checkpoint"
tap_run_fails "eval of a saved model with another --model fails" 1 "$WEFT_BIN" eval --model-file "$saved" --model fm \
    --data "$tap_tmp/ratings.csv"
tap_run_fails "eval of a model of ratings on data without ratings fails" 1 "$WEFT_BIN" eval --model-file "$saved" \
    --format adult --data "$WEFT_SOURCE_ROOT/data/adult/adult.data.zst"
tap_run_fails "eval without a model: usage error" 2 "$WEFT_BIN" eval --data x
tap_run_fails "--save in a directory that does not exist: exit status 1" 1 "$WEFT_BIN" train --save "$tap_tmp/no/such"
tap_run_fails "--save of a worker, too, before it has connected" 1 "$WEFT_BIN" worker --servers 127.0.0.1:9 --security none \
    --data "$WEFT_SOURCE_ROOT/data/adult/adult.data.zst" --save "$tap_tmp/no/such"
tap_like "the error names the file" "$(cat "$tap_tmp/run.out")" "^weft worker: cannot write $tap_tmp/no/such: No such file"
# The directory is removed during training: the result is reported nevertheless. A training that ends before is
# repeated with more epochs.
for epochs in 1 30 900; do
    mkdir "$tap_tmp/removed"
    : >"$tap_tmp/unsaved.out"
    "$WEFT_BIN" train --workers 2 --servers 1 --epochs $epochs --save "$tap_tmp/removed/model" \
        --report "$tap_tmp/unsaved.json" >"$tap_tmp/unsaved.out" 2>&1 &
    unsaved=$!
    tap_until grep -q ' pid [0-9]' "$tap_tmp/unsaved.out"
    rmdir "$tap_tmp/removed" 2>/dev/null
    status=0
    wait "$unsaved" || status=$?
    [ -e "$tap_tmp/removed" ] || break
    rm -r "$tap_tmp/removed"
done
tap_is "a model that cannot be saved at the end: exit status 1" "$status" 1
tap_like "the error says so" "$(cat "$tap_tmp/unsaved.out")" \
    "^weft train: the model was not saved: cannot create $tap_tmp/removed/"
tap_run "the report is written nevertheless" jq -e '.test_auc > 0.85' "$tap_tmp/unsaved.json"

# ---- a dense model: all parameters are sent; it is saved with its own rows after those of the
# features ----
train_mlp() {
    name=$1
    shift
    tap_run "$name: train --model mlp $*" "$WEFT_BIN" train --model mlp --workers 2 --servers 2 \
        --factors 24 --batch 512 --epochs 2 "$@" --report "$tap_tmp/$name.json"
}
train_mlp mlp --loss-bound 0 --save "$tap_tmp/mlp.safetensors" --checkpoint "$tap_tmp/mlp-ckpt" \
    --checkpoint-every 20
holds "mlp has an AUC above 0.918 and the documented report" mlp '.test_auc > 0.918 and .delivered_fraction == 1 and
    .model == "mlp" and .factors == 24 and .init_scale == 0.08'
train_mlp mlp-lossy --mode ssp:1 --loss-bound 0.10 --inject-loss 0.05 --value-type bf16
holds "mlp has an AUC above 0.918 with values missing" mlp-lossy '.test_auc > 0.918 and .delivered_fraction < 1'
adult=$WEFT_SOURCE_ROOT/data/adult/adult.data.zst
tap_run "eval of mlp succeeds" sh -c '"$WEFT_BIN" eval --model-file "$0" --data "$1" --json >"$2"' \
    "$tap_tmp/mlp.safetensors" "$adult" "$tap_tmp/eval.json"
auc=$(jq .test_auc "$tap_tmp/mlp.json")
holds "eval computes the training's test AUC" eval ".auc == $auc and .model == \"mlp\" and .features_unknown == 0"
tap_run "eval of mlp's checkpoint succeeds" sh -c '"$WEFT_BIN" eval --model-file "$0" --model mlp --format adult \
    --data "$1" --json >"$2"' "$tap_tmp/mlp-ckpt" "$adult" "$tap_tmp/eval.json"
holds "the checkpoint's AUC is above 0.9" eval '.auc > 0.9 and .features_unknown == 0'
printf '1 1:1\n0 2:1\n' >"$tap_tmp/two.libsvm"
tap_run_fails "eval of mlp's checkpoint with other data fails" 1 "$WEFT_BIN" eval --model-file "$tap_tmp/mlp-ckpt" \
    --model mlp --format libsvm --data "$tap_tmp/two.libsvm" --rows all
tap_like "the error has both numbers of rows" "$(cat "$tap_tmp/run.out")" \
    'has 7698 rows, but a model of this data has 5'

# ---- topics: each document has one of 4 topics, whose 12 words are equally frequent ----
awk 'BEGIN { srand(1); print 600; print 48; n = 0
    for (d = 1; d <= 600; d++) { t = int(rand() * 4); for (i = 0; i < 40; i++)
        line[n++] = d " " t * 12 + 1 + int(rand() * 12) " 1" }
    print n; for (i = 0; i < n; i++) print line[i] }' >"$tap_tmp/docword.txt"
train_lda() {
    name=$1
    shift
    tap_run "$name: train --model lda $*" "$WEFT_BIN" train --model lda --format docword \
        --data "$tap_tmp/docword.txt" --factors 8 --workers 3 --servers 2 --batch 32 --epochs 15 "$@" \
        --report "$tap_tmp/$name.json"
}
for mode in $lda_modes; do
    train_lda "lda-$mode" --mode "$mode" --inject-loss 0.05 --save "$tap_tmp/lda.safetensors"
    # The job itself fails unless the servers count every token once.
    holds "the perplexity is between 11.5 and 13.5" "lda-$mode" '.test_perplexity > 11.5 and
        .test_perplexity < 13.5 and .delivered_fraction == 1 and .injected_drops > 0'
done
holds "the report has the figures of lda" lda-asp '.model == "lda" and .factors == 8 and .alpha == 0.1 and
    .beta == 0.05 and .average == "none" and .loss_bound == 0 and (.train_perplexity | length == 15 and
    .[14] < .[0]) and .epoch_test_perplexity[14] == .test_perplexity and (has("test_auc") | not)'
train_lda lda-until --mode bsp --epochs 60 --until-perplexity 14 --check-steps 4
holds "ends at the first check that reaches the perplexity" lda-until '.until | .reached and .perplexity == 14 and
    .loss == null and .auc == null and .checks[-1].test_perplexity <= 14 and
    (.checks[:-1] | length > 0 and all(.test_perplexity > 14)) and .steps == .checks[-1].step and
    (.checks[0] | has("test_auc") | not)'
holds "reports the model of the last check" lda-until '.test_perplexity == .until.checks[-1].test_perplexity and
    .epochs == (.until.epochs | ceil)'
train_lda lda-never --epochs 2 --until-perplexity 2 --check-steps 1000
holds "without reaching the perplexity it ends after the epochs" lda-never '(.until.reached | not) and .epochs == 2 and
    ([.until.checks[].test_perplexity] == .epoch_test_perplexity)'
tap_run_fails "lda rejects --until-loss" 2 "$WEFT_BIN" train --model lda --format docword \
    --data "$tap_tmp/docword.txt" --until-loss 0.3
tap_like "the error says why" "$(cat "$tap_tmp/run.out")" 'lda has no log-loss and no AUC'
tap_run_fails "lr rejects --until-perplexity" 2 "$WEFT_BIN" train --until-perplexity 100
tap_like "the error says why" "$(cat "$tap_tmp/run.out")" 'lr has no perplexity'
tap_run_fails "weft worker rejects --until-perplexity" 2 "$WEFT_BIN" worker --servers 127.0.0.1:9 --model lda \
    --format docword --data "$tap_tmp/docword.txt" --until-perplexity 100
tap_run "eval of lda succeeds" sh -c '"$WEFT_BIN" eval --model-file "$0" --data "$1" --json >"$2"' \
    "$tap_tmp/lda.safetensors" "$tap_tmp/docword.txt" "$tap_tmp/eval.json"
perplexity=$(jq .test_perplexity "$tap_tmp/lda-asp.json")
holds "eval computes the training's test perplexity" eval ".perplexity == $perplexity and .features_unknown == 0"
tap_run_fails "predict of lda fails" 1 "$WEFT_BIN" predict --model-file "$tap_tmp/lda.safetensors" \
    --data "$tap_tmp/docword.txt"
tap_run_fails "lda rejects --loss-bound" 2 "$WEFT_BIN" train --model lda --format docword --data x --loss-bound 0.1
tap_like "the error says why" "$(cat "$tap_tmp/run.out")" '--loss-bound cannot be used with --model lda'
tap_run_fails "lda rejects --replicas with a bound above 0" 2 "$WEFT_BIN" train --model lda --format docword --data x \
    --mode asp --replicas 1 --div-max 0.5 --on-server-death promote
tap_like "the error says why" "$(cat "$tap_tmp/run.out")" 'requires --div-max 0, and --mode ssp or asp'
tap_run_fails "lda rejects --replicas in bsp" 2 "$WEFT_BIN" train --model lda --format docword --data x \
    --replicas 1 --on-server-death promote
tap_run_fails "lda rejects data of other formats" 2 "$WEFT_BIN" train --model lda
tap_run_fails "other models reject docword data" 2 "$WEFT_BIN" train --format docword --data "$tap_tmp/docword.txt"
tap_run "lda with checkpoints succeeds" "$WEFT_BIN" train --model lda --format docword \
    --data "$tap_tmp/docword.txt" --factors 8 --workers 1 --servers 1 --epochs 2 \
    --checkpoint "$tap_tmp/lda-ckpt" --checkpoint-every 2
tap_run_fails "lda rejects --resume" 1 "$WEFT_BIN" train --model lda --format docword \
    --data "$tap_tmp/docword.txt" --factors 8 --workers 1 --servers 1 --epochs 4 \
    --checkpoint "$tap_tmp/lda-ckpt" --resume
tap_like "the error says why" "$(cat "$tap_tmp/run.out")" 'topics of their words were lost'

# A restarted worker does not know the topics that its predecessor has drawn, even if that ended no clock.
"$WEFT_BIN" server --security none --port 0 --workers 1 --shards 1 >"$tap_tmp/server.out" 2>&1 &
server=$!
tap_at_exit 'kill $server 2>/dev/null; wait'
tap_until grep -q '^shard 0' "$tap_tmp/server.out"
tap_run_fails "lda rejects a restarted worker" 1 env WEFT_RESTART=1 "$WEFT_BIN" worker --security none \
    --servers "127.0.0.1:$(sed -n 's/^shard 0.*://p' "$tap_tmp/server.out")" --model lda --format docword \
    --data "$tap_tmp/docword.txt"
tap_like "the error says why, and what to do" "$(cat "$tap_tmp/run.out")" \
    'topics of their words were lost.* empty servers and without WEFT_RESTART'
kill $server
wait $server

# ---- the shipped data ----
tap_run "the data set adult is found from any directory" \
    env -u WEFT_DATA_DIR sh -c 'cd / && exec "$WEFT_BIN" train --epochs 1 --batch 4096'

# ---- incompatible options ----
tap_run "mf rejects data without ratings" sh -c '! "$WEFT_BIN" train --model mf 2>"$0"' "$tap_tmp/err"
tap_like "the error says why" "$(cat "$tap_tmp/err")" 'requires ratings, which the format adult'
tap_run "an unknown --model is rejected" sh -c '! "$WEFT_BIN" train --model svm 2>"$0"' "$tap_tmp/err"
tap_like "the error lists the models" "$(cat "$tap_tmp/err")" 'lr, fm, mf, mlp or lda'
tap_run "a negative --l2 is rejected" sh -c '! "$WEFT_BIN" train --l2 -1 2>"$0"' "$tap_tmp/err"
tap_like "the error has the range" "$(cat "$tap_tmp/err")" 'a number of at least 0'
tap_done
