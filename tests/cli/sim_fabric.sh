#!/bin/sh
# `weft sim fabric`: its JSON has all figures and depends only on the seed; charts; settings files and their
# errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1

fabric() { "$WEFT_BIN" sim fabric --seconds 12 --workers 8 "$@"; }
json() { fabric --json "$@" >json; }

# refused <text on stderr> <options...>: exit status 2, nothing on stdout.
refused() {
    sentence=$1
    shift
    status=0
    fabric "$@" >out 2>err || status=$?
    if [ "$status" = 2 ] && [ ! -s out ] && grep -q -e "$sentence" err; then
        tap_pass "rejects $*"
    else
        tap_fail "rejects $*" "exit $status, expected 2 and: $sentence
$(cat out err)"
    fi
}

complete='
    def numbers(names): [.[names[]] | type] | all(. == "number");
    .ok and numbers(["commits", "commits_per_s", "dropped", "share_min", "replica_bytes"]) and
    (.delay | numbers(["mean", "sd", "p99", "max"])) and
    (.delay.mean <= .delay.max and .delay.p99 <= .delay.max) and
    has("server_link_utilization") and has("replica_divergence_max") and has("plan_us") and
    has("makespan_s") and .commits == (.commits_by_worker | add)'

tap_run "a run without a scheduler succeeds" json
tap_run "its report has all figures" jq -e "$complete"' and .plan_us == null and .makespan_s == null and
    .replica_divergence_max == null and .server_link_utilization > 0.1 and
    ((.commits_per_s * 12 - .commits) | fabs) < 1e-6' json

tap_run "a run at packet level succeeds" json --level packet --update-bytes 1250000 --policy order
tap_run "its report has the same figures, and packets" jq -e "$complete"' and .level == "packet" and .packets > 1000 and
    (.packets_retransmitted | type) == "number" and .plan_us.p50 > 0' json
refused "64 hosts" --level packet --workers 64
tap_run "a run with a scheduler succeeds" json --policy order --network NS3
tap_run "its report has all figures" jq -e "$complete"' and .policy == "order" and
    (.plan_us | .p50 > 0 and .p99 >= .p50)' json
jq 'del(.plan_us)' json >first
tap_run "a second run with the same seed succeeds" json --policy order --network NS3
tap_is "the reports are equal except for planning times" "$(jq 'del(.plan_us)' json)" "$(cat first)"
tap_run "a run with another seed succeeds" json --policy order --network NS3 --seed 2
tap_run "its report differs" jq -e --slurpfile first first '.commits_by_worker != $first[0].commits_by_worker' json

tap_run "--mode sync succeeds" json --mode sync --policy ring
tap_run "its report has rounds and a makespan" jq -e "$complete"' and .makespan_s > 2 and .rounds == 5 and
    .server_link_utilization == null and .delay.max == 0' json
tap_run "--mode ssp:1 succeeds" json --mode ssp:1 --compute slow-20
tap_run "workers are at most 2 commits apart" jq -e '.staleness == 1 and
    (.commits_by_worker | max - min) <= 2' json
tap_run "--div-max without a scheduler succeeds" json --div-max 3
tap_run "its chain of replicas copies every update" jq -e '.replication == "chain" and .replica_divergence_max == 0 and
    .replica_bytes > 1e8' json
tap_run "--chain with a scheduler succeeds" json --div-max 3 --chain --policy order
tap_run "its chain of replicas copies every update" jq -e '.replication == "chain" and .replica_divergence_max == 0 and
    .replica_bytes > 1e8' json
tap_run "--div-max with a scheduler succeeds" json --div-max 3 --policy order
tap_run "its replicas receive sums and stay within the bound" jq -e '.replication == "bounded" and .replica_divergence_max <= 3 and
    .replica_bytes > 0' json

tap_like "the text report has the commits" "$(fabric --policy fifo)" '^commits  *[0-9]*, '
tap_like "the text report has planning times" "$(fabric --policy fifo)" '^planning '

# ---- settings in files
cat >compute.json <<'END'
{"name": "like fixed", "step_ms_min": 2000, "step_ms_max": 2000}
END
cat >network.json <<'END'
{"rate_mbps": 1000, "delay_us": 50}
END
tap_run "settings from files succeed" json --compute compute.json --network network.json
tap_is "the report has their names" "$(jq -c '[.compute, .network]' json)" '["like fixed","of a file"]'
jq 'del(.compute, .network)' json >of_files
tap_run "the built-in settings succeed" json --compute fixed --network homogeneous
tap_is "they give the same result" "$(jq 'del(.compute, .network)' json)" "$(cat of_files)"

# bad <text on stderr> <content of a network's file>
bad() {
    printf '%s' "$2" >bad.json
    refused "bad.json: $1" --network bad.json
}
bad 'unknown key "rate_mbs"; did you mean "rate_mbps"?' '{"rate_mbs": 100}'
bad 'unknown key "colour"' '{"colour": 1}'
bad '"rate_mbps" is -1; it must be from 0' '{"rate_mbps": -1}'
bad '"rate_mbps" is not a number' '{"rate_mbps": "fast"}'
bad '"rate_mbps" is a duplicate key' '{"rate_mbps": 1, "rate_mbps": 2}'
bad 'a rate lies between' '{"rate_mbps": 0}'
bad 'contended links need' '{"contended_workers": 0.5}'
bad 'the file is empty' ''
bad 'the file is empty' '
'
bad 'not JSON, or truncated' '{"rate_mbps": 10'
bad 'not JSON, or truncated' '{"rate_mbps": 10} more'
bad 'not JSON, or truncated' '{"rate_mbps": 1e'
bad 'a JSON object is required' '[1, 2]'
bad '"name" is not a string' '{"name": 7}'
bad '"name" has a quote' '{"name": "a'"'"' b"}'
bad '"name" has a quote' '{"name": "a\" b"}'
bad '"name" has a quote' '{"name": "a\\b"}'
bad '"name" has a quote' '{"name": "a\nsystem(1)"}'
bad '"name" has a quote' '{"name": "a\u007f"}'
bad '"slow_uplinks" is 1.5; it must be from 0 to 1' '{"slow_uplinks": 1.5}'
printf '{"rate_mbps": 10}\000' >zero.json
refused 'has a zero byte' --network zero.json
printf '{"step_ms_min": 10, "step_ms_max": 5}' >bad.json
refused 'bad.json: the minimum time of a step is above the maximum' --compute bad.json
refused 'not a built-in setting (fixed, .*No such file' --compute CS7
refused 'not a built-in setting (homogeneous, .*No such file' --network NS7

# ---- options
refused '--policy "lifo".*fair, fifo, order' --policy lifo
refused '--mode "ssp".*async, ssp:N (such as ssp:2) or sync' --mode ssp
refused '--workers "0".*from 1 to 1000' --workers 0
refused '--seconds "0"' --seconds 0
refused '--div-max "-1"' --div-max -1
refused 'a chain requires replicas' --chain
refused 'a chain copies single updates' --chain --div-max 3 --policy +aggregation
refused 'requires --mode sync' --policy ring
refused 'omit --compute' --grid --compute fixed
refused 'omit --grid' --grid --gantt x
refused '--grid also runs ring: .*two workers' --grid --mode sync --workers 1
refused '--grid also runs ring: .*no replicas' --grid --mode sync --div-max 5 --policy order

# ---- pictures
tap_run "--chrome succeeds" fabric --policy order --chrome run.json
tap_run "slices of a track do not overlap" jq -e '
    [.[] | select(.ph == "X")] as $slices | ($slices | length) > 50 and
    ($slices | group_by([.pid, .tid]) | all(. as $t | [range(1; length) |
        $t[.].ts >= $t[. - 1].ts + $t[. - 1].dur - 0.002] | all)) and
    ([.[] | select(.name == "process_name") | .args.name] | index("worker 7") != null and
        index("server 0") != null)' run.json
if command -v gnuplot >/dev/null; then
    mkdir pictures
    tap_run "--gantt succeeds" fabric --policy order --gantt pictures/gantt.png
    tap_is "the chart is a PNG file" "$(head -c 4 pictures/gantt.png | tail -c 3)" PNG
    tap_run "gnuplot's script is written beside it" test -s pictures/gantt.gp
else
    tap_skip "--gantt succeeds" "no gnuplot"
fi
tap_run_fails "a trace that cannot be written: exit status 1" 1 fabric --chrome /no/such/file
tap_run_fails "a chart that cannot be written: exit status 1" 1 fabric --gantt /no/such/file

# ---- the grid
tap_run "--grid succeeds" json --grid --policy order
tap_run "the report has nine cells" jq -e '(.cells | length) == 9 and (.row_times_column_error | type) == "number" and
    all(.cells[]; .speed_up > 0 and .best_baseline == "fair" and (.runs | keys) == ["fair", "order"])' json
tap_like "the text has a row for each compute setting" "$(fabric --grid --policy order --mode sync)" '^CS3 .*[0-9]'

echo '{}' >input.json
tap_run_fails "--chrome does not write into an input" 1 "$WEFT_BIN" sim fabric --compute fixed --network input.json \
    --chrome input.json
tap_is "the input is unchanged" "$(cat input.json)" "{}"
for name in settings.png settings.gp; do
    echo '{}' >$name
    tap_run_fails "--gantt does not write into an input, $name" 1 "$WEFT_BIN" sim fabric --compute $name --network $name \
        --gantt settings
    tap_like "the error names it" "$(cat run.out)" "$name: it is an input; name another"
    tap_is "the input is unchanged" "$(cat $name)" "{}"
    rm $name
done
for name in ./one.gp "$tap_tmp/one.png"; do
    tap_run_fails "--chrome does not write into a file of --gantt" 1 fabric --gantt one --chrome "$name"
    tap_like "the error names it" "$(cat run.out)" "both write $name; name another"
    tap_is "nothing is written" "$(ls one.* 2>/dev/null)" ""
done

tap_done
