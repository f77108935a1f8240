#!/bin/sh
# /metrics and /hot of servers and workers: the format, the names, which must be those of docs/METRICS.md and the
# dashboard, the counts, and scraping by Prometheus. The test waits for conditions, not times.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR DMLC_ROLE DMLC_RANK RANK
check=$WEFT_SOURCE_ROOT/tests/cli/metrics_check.py
server='' worker='' prometheus='' coordinator='' scheduler='' aggregator='' train='' job='' load='' perf='' sim=''
tap_at_exit 'kill $server $worker $prometheus $coordinator $scheduler $aggregator $train $job $load $perf \
    $sim 2>/dev/null; wait'

fetch() { # fetch <url>, without a program of weft
    python3 -c 'import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())' "$1"
}

# status_as <host> <url>: HTTP status of a request with this Host header; "": without the header
status_as() {
    python3 - "$@" <<'END'
import sys, http.client, urllib.parse
host, url = sys.argv[1], urllib.parse.urlsplit(sys.argv[2])
connection = http.client.HTTPConnection(url.netloc, timeout=60)
connection._http_vsn, connection._http_vsn_str = (11, "HTTP/1.1") if host else (10, "HTTP/1.0")
connection.putrequest("GET", url.path, skip_host=True, skip_accept_encoding=True)
if host:
    connection.putheader("Host", host)
connection.endheaders()
reply = connection.getresponse()
print(reply.status, reply.read(300).decode().split("\n")[0] if reply.status == 403 else "")
END
}

value() { python3 "$check" value "$@"; }

# at_least <n> <url> <name> [label=value]: one scrape, kept in scrape.txt
at_least() {
    least=$1 url=$2
    shift 2
    fetch "$url" >scrape.txt && value scrape.txt "$@" >value.txt &&
        [ "$(cut -d. -f1 value.txt)" -ge "$least" ]
}

serve() {
    "$WEFT_BIN" server --security none --port 0 --shards-per-server 2 --workers 1 --peer-timeout 120 \
        --metrics 0 --metrics-host node7,node8 --metrics-host 192.0.2.7 >server.out 2>server.err &
    server=$!
    tap_until grep -q '^metrics: ' server.out
}

work() {
    "$WEFT_BIN" worker --security none --servers "$(sed -n 's/^shard.*: //p' server.out | paste -sd,)" \
        --workers 1 --epochs 10000 --keepalive-ms 0 --peer-timeout 120 --metrics 0 \
        >worker.out 2>worker.err &
    worker=$!
    tap_until grep -q '"metrics"' worker.out
}

# Wait for one epoch. A worker that has ended is replaced by another one.
is_training() {
    kill -0 "$worker" 2>/dev/null || work
    at_least 1 "$(sed -n 's/.*"metrics":"\([^"]*\)".*/\1/p' worker.out)" weft_worker_epochs_total
}

tap_run "a server prints the address of its metrics" serve
at=$(sed -n 's/^metrics: //p' server.out)
tap_like "it is on loopback" "$at" '^http://127\.0\.0\.1:[0-9]*/metrics$'
for host in localhost 127.0.0.1:9101 node7:9101 NODE8 192.0.2.7 ''; do
    tap_is "Host '$host' is accepted" "$(status_as "$host" "$at")" "200 "
done
for host in attacker.example node7.attacker.example 192.0.2.8; do
    tap_like "Host $host is rejected" "$(status_as "$host" "$at")" '^403 .*--metrics-host NAME'
    tap_like "Host $host is rejected for /hot" "$(status_as "$host" "${at%metrics}hot")" '^403 '
done
"$WEFT_BIN" server --metrics 0 --metrics-host 'a b' >refused.out 2>&1
tap_is "an invalid --metrics-host: usage error" "$? $(grep -c 'names or addresses with commas' refused.out)" "2 1"
tap_run "a worker trains" work
tap_run "the worker's epochs are counted" tap_until is_training
cp scrape.txt worker.txt
tap_run "pushes are served" tap_until at_least 1 "$at" weft_requests_total kind=push
tap_run "each shard has a worker" tap_until at_least 2 "$at" weft_workers_connected
fetch "$at" >server.txt

# ---- Prometheus --------------------------------------------------------------------------------

port=${at%/metrics}
port=${port##*:}
start_prometheus() {
    worker_at=$(sed -n 's/.*"metrics":"http:\/\/\([^\/]*\)\/.*/\1/p' worker.out)
    cat >prometheus.yml <<END
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: weft
    static_configs: [{targets: ["127.0.0.1:$port", "$worker_at"]}]
END
    prometheus --config.file=prometheus.yml --storage.tsdb.path=data \
        --web.listen-address=127.0.0.1:0 >prometheus.out 2>&1 &
    prometheus=$!
    tap_until grep -q 'msg="Listening on"' prometheus.out
}

# has_value <expression> <jq condition on the value>
has_value() {
    address=$(sed -n 's/.*msg="Listening on" address=\([0-9.:]*\).*/\1/p' prometheus.out)
    python3 -c 'import sys, urllib.parse, urllib.request
sys.stdout.write(urllib.request.urlopen("http://%s/api/v1/query?%s" % (sys.argv[1],
    urllib.parse.urlencode({"query": sys.argv[2]})), timeout=60).read().decode())' \
        "$address" "$1" >answer.json &&
        jq -e ".data.result[0].value[1] | tonumber | $2" answer.json >/dev/null
}

if command -v prometheus >/dev/null; then
    tap_run "Prometheus starts" start_prometheus
    tap_run "Prometheus scrapes the server" tap_until has_value "up{instance=\"127.0.0.1:$port\"}" '. == 1'
    tap_run "it has the number of workers" tap_until has_value 'sum(weft_workers_connected)' '. >= 2'
    tap_run "it computes quantiles of the latencies" tap_until has_value \
        'histogram_quantile(0.99, sum by (le) (weft_served_latency_seconds_bucket{part="ps_proc"}))' \
        '. > 0'
else
    tap_skip "Prometheus scrapes the server" "no prometheus: install it"
fi
# Enough was pushed; stop the load for the following cases.
kill "$worker"

# ---- a coordinator and a job ---------------------------------------------------------------------

"$WEFT_BIN" coordinator --security none --port 0 --workers 1 --shards 1 --metrics 0 >coordinator.out \
    2>coordinator.err &
coordinator=$!
tap_run "a coordinator prints the address of its metrics" tap_until grep -q '^metrics: ' coordinator.out
fetch "$(sed -n 's/^metrics: //p' coordinator.out)" >coordinator.txt
tap_is "they have the number of workers" "$(value coordinator.txt weft_job_workers)" 1
kill "$coordinator"

"$WEFT_BIN" server --security none --port 0 --workers 1 --shards 1 --coordinate 0 --metrics 0 \
    >both.out 2>both.err &
coordinator=$!
tap_run "a server with --coordinate prints the address of its metrics" tap_until grep -q '^metrics: ' both.out
tap_run "they have the number of workers of the job" tap_until at_least 1 "$(sed -n 's/^metrics: //p' both.out)" weft_job_workers
cp scrape.txt both.txt
tap_is "they have its shard" "$(value both.txt weft_workers_connected shard=0)" 0
tap_is "no metric family occurs twice" "$(grep '^# TYPE' both.txt | sort | uniq -d)" ""
kill "$coordinator"

"$WEFT_BIN" scheduler --security none --port 0 --workers 1 --shards 1 --metrics 0 >sched.out 2>sched.err &
scheduler=$!
tap_run "a scheduler prints the address of its metrics" tap_until grep -q '^metrics: ' sched.out
fetch "$(sed -n 's/^metrics: //p' sched.out)" >sched.txt
tap_is "it counted no updates" "$(value sched.txt weft_sched_updates_total)" 0
kill "$scheduler"

"$WEFT_BIN" aggregate --security none --listen 127.0.0.1:0 --metrics 0 \
    --servers "$(sed -n 's/^shard.*: //p' server.out | paste -sd,)" >aggregate.out 2>aggregate.err &
aggregator=$!
tap_run "an aggregator prints the address of its metrics" tap_until grep -q '^metrics: ' aggregate.out
tap_run "it is connected to its server" tap_until at_least 1 "$(sed -n 's/^metrics: //p' aggregate.out)" \
    weft_aggregator_server_up shard=1
cp scrape.txt aggregate.txt
tap_is "it has no workers" "$(value aggregate.txt weft_aggregator_workers shard=0)" 0
"$WEFT_BIN" aggregate --dense 127.0.0.1:0 --members 2 --security none --metrics 0 >box.out 2>box.err &
box=$!
tap_run "a box prints the address of its metrics" tap_until grep -q '^metrics: ' box.out
fetch "$(sed -n 's/^metrics: //p' box.out)" >box.txt
kill "$box"
wait "$box"
tap_is "it counted no packets" "$(value box.txt weft_box_packets_total)" 0
kill "$aggregator"

"$WEFT_BIN" train --servers 1 --workers 1 --epochs 10000 --metrics 0 --metrics-host node9 >train.out 2>train.err &
train=$!
tap_run "weft train prints the address of its metrics" tap_until grep -q '^metrics: ' train.out
at=$(sed -n 's/^metrics: //p' train.out)
tap_run "its worker becomes ready" tap_until at_least 1 "$at" weft_train_processes role=worker
tap_run "it counts epochs" tap_until at_least 1 "$at" weft_train_epochs_total
cp scrape.txt train.txt
fetch "${at%/metrics}/targets" >targets.json
tap_like "/targets rejects another host name" "$(status_as attacker.example "${at%metrics}targets")" '^403 '
tap_is "/targets accepts the name of --metrics-host" "$(status_as node9 "${at%metrics}targets")" "200 "
tap_is "its worker's metrics accept that name" \
    "$(status_as node9 "http://$(jq -r '.[1].targets[0]' targets.json)/metrics")" "200 "
# shellcheck disable=SC2016 # jq's
tap_run "/targets has its server and worker" jq -e 'map(.labels.role) == ["server", "worker"] and
    all(.targets | length == 1 and (.[0] | test("^127.0.0.1:[0-9]+$")))' targets.json
top_at=${at#http://}
# found <line>: true if weft top shows it after all processes have replied in time
found() {
    "$WEFT_BIN" top --once "${top_at%/metrics}" >top.txt
    grep -q "$1" top.txt
}
tap_run "weft top finds them" tap_until found "^weft top: 1 server, 1 worker, 0 gone"
kill "$train"
wait "$train" 2>/dev/null

# A worker dies and is restarted.
# shellcheck disable=SC2016 # expanded by the child's shell
"$WEFT_BIN" run --metrics 0 --restart 1 --security none -n 1 -s 1 -- sh -c \
    'test "$WEFT_RESTART" = 1 || exit 3
    until test -e over; do sleep 0.1; done' >job.out 2>job.err &
job=$!
tap_run "weft run prints the address of its metrics" tap_until grep -q '^weft run: metrics: ' job.err
at=$(sed -n 's/^weft run: metrics: //p' job.err)
tap_run "it counts the death of a worker" tap_until at_least 1 "$at" weft_run_deaths_total role=worker
tap_run "it counts the restart" tap_until at_least 2 "$at" weft_run_starts_total role=worker
cp scrape.txt job.txt
tap_is "three processes run" "$(value job.txt weft_run_processes)" 3
fetch "${at%/metrics}/targets" >targets.json
tap_run "/targets has the coordinator and the server" jq -e 'map(.labels.role) == ["coordinator", "server"]' \
    targets.json
top_at=${at#http://}
tap_run "weft top finds the server" tap_until found "^weft top: 1 server, 0 workers, 0 gone"
tap_like "weft top shows the coordinator" "$(cat top.txt)" "^COORDINATOR"
: >over
wait "$job"
tap_is "the job exits with 0" $? 0

"$WEFT_BIN" load --local 1 --workers 3 --rows 4 --dim 4 --warmup 0 --seconds 3600 --metrics 0 \
    >load.out 2>load.err &
load=$!
tap_run "weft load prints the address of its metrics" tap_until grep -q '^metrics: ' load.err
at=$(sed -n 's/^metrics: //p' load.err)
tap_run "pushes of its workers are counted" tap_until at_least 1 "$at" weft_client_messages_total kind=push
tap_run "latencies of pulls are counted" tap_until at_least 1 "$at" weft_load_request_latency_seconds_count kind=pull
cp scrape.txt load.txt
tap_run "three workers are connected" tap_until at_least 3 "$at" weft_load_workers state=connected
top_at=${at#http://}
tap_run "weft top shows weft load" tap_until found "^${top_at%/metrics}  *3 "
kill "$load"
wait "$load"
tap_is "weft load exits with 0 at SIGTERM after the scrapes" $? 0

"$WEFT_BIN" perf incast --security none --senders 2 --rounds 1000000 --bytes 4000 --gap 1 --timeout-s 600 \
    --metrics 0 >perf.out 2>perf.err &
perf=$!
tap_run "weft perf prints the address of its metrics" tap_until grep -q '^metrics: ' perf.err
at=$(sed -n 's/^metrics: //p' perf.err)
tap_run "rounds are counted" tap_until at_least 1 "$at" weft_perf_rounds_total phase=measured
tap_run "messages of each participant are counted" tap_until at_least 6 "$at" weft_messages_received_total \
    participant=0
cp scrape.txt perf.txt
top_at=${at#http://}
tap_run "weft top shows weft perf" tap_until found "^${top_at%/metrics}  *perf"
kill "$perf"
wait "$perf"
tap_like "at SIGTERM weft perf prints a report" "$(cat perf.out)" "rounds"

"$WEFT_BIN" sim swarm --seeds 1..1000000 --metrics 0 >sim.out 2>sim.err &
sim=$!
tap_run "weft sim prints the address of its metrics" tap_until grep -q '^metrics: ' sim.err
tap_run "successful runs are counted" tap_until at_least 1 "$(sed -n 's/^metrics: //p' sim.err)" \
    weft_sim_runs_total result=good
cp scrape.txt sim.txt
kill "$sim"
wait "$sim" 2>/dev/null
at=$(sed -n 's/^metrics: //p' server.out)

# ---- the format and the names ------------------------------------------------------------------

tap_run "the server's metrics have the Prometheus format" python3 "$check" format server.txt
tap_run "the worker's metrics have the Prometheus format" python3 "$check" format worker.txt
if command -v promtool >/dev/null; then
    tap_run "promtool accepts the server's metrics" promtool check metrics <server.txt
    tap_is "without a warning" "$(cat run.out)" ""
    tap_run "promtool accepts the worker's metrics" promtool check metrics <worker.txt
    tap_is "without a warning" "$(cat run.out)" ""
else
    tap_skip "promtool" "no promtool: install prometheus"
fi
tap_run "the coordinator's metrics have the Prometheus format" python3 "$check" format coordinator.txt
tap_run "the scheduler's metrics have the Prometheus format" python3 "$check" format sched.txt
tap_run "the aggregator's metrics have the Prometheus format" python3 "$check" format aggregate.txt
tap_run "the box's metrics have the Prometheus format" python3 "$check" format box.txt
tap_run "weft train's metrics have the Prometheus format" python3 "$check" format train.txt
tap_run "weft run's metrics have the Prometheus format" python3 "$check" format job.txt
tap_run "weft load's metrics have the Prometheus format" python3 "$check" format load.txt
tap_run "weft perf's metrics have the Prometheus format" python3 "$check" format perf.txt
tap_run "weft sim's metrics have the Prometheus format" python3 "$check" format sim.txt
python3 "$check" names server.txt worker.txt coordinator.txt sched.txt aggregate.txt box.txt train.txt job.txt load.txt \
    perf.txt sim.txt >names.txt
sed -n 's/^| `\([a-z_]*\)` | \(counter\|gauge\|histogram\) .*/\1/p' "$WEFT_SOURCE_ROOT/docs/METRICS.md" |
    sort >documented.txt
tap_is "docs/METRICS.md has every name, and no other" "$(cat documented.txt)" "$(cat names.txt)"

# ---- the dashboard -----------------------------------------------------------------------------

dashboard=$WEFT_SOURCE_ROOT/examples/grafana/weft.json
python3 "$check" dashboard "$dashboard" >used.txt
tap_is "every metric of a panel exists" "$(comm -13 names.txt used.txt)" ""
tap_is "the panels use more than 15 metrics" "$(($(wc -l <used.txt) > 15))" 1
if command -v promtool >/dev/null; then
    # shellcheck disable=SC2016 # jq's
    jq '{groups: [{name: "weft", rules: [.panels[].targets[].expr |
        gsub("\\$__rate_interval"; "1m") | gsub("\\$instance"; ".*") |
        {record: "a:b", expr: .}] | to_entries |
        map({record: "a:b\(.key)", expr: .value.expr})}]}' "$dashboard" >rules.yml
    tap_run "promtool accepts the panels' expressions" promtool check rules rules.yml
else
    tap_skip "promtool accepts the panels' expressions" "no promtool: install prometheus"
fi

# ---- counts ------------------------------------------------------------------------------------

# counted <kind>: true if one scrape has no more latencies than requests
counted() { [ "$(value server.txt weft_requests_total kind="$1")" -ge \
    "$(value server.txt weft_served_latency_seconds_count kind="$1" part=ps_proc)" ]; }
tap_run "there are no more latencies of pushes than pushes" counted push
tap_run "there are no more latencies of pulls than pulls" counted pull
pushed=$(value server.txt weft_table_updates_total)
applied=$(value server.txt weft_updates_applied_total)
tap_is "as many row updates are counted as gradients were applied" "$pushed" "$applied"

# ---- /hot --------------------------------------------------------------------------------------

fetch "${at%/metrics}/hot?table=0&k=7" >hot.json
# shellcheck disable=SC2016 # jq's
tap_run "/hot has the hottest rows in decreasing order" jq -e '.is_declared and .exact and .shards_answered == 2 and
    (.rows | length) == 7 and (.rows | map(.updates) | . == (sort | reverse)) and
    ([.rows[].shard] | unique | length) <= 2 and (.rows | map(.id) | unique | length) == 7 and
    .updates >= (.rows | map(.updates) | add)' hot.json
fetch "${at%/metrics}/hot?table=3" >none.json
tap_run "/hot of a table that does not exist has no rows" jq -e '(.is_declared | not) and .rows == [] and .updates == 0' none.json

# ---- usage errors ------------------------------------------------------------------------------

tap_run_fails "a metrics port that is in use: exit status 1" 1 timeout 300 "$WEFT_BIN" server --security none --port 0 \
    --metrics "$port"
tap_like "the error names it" "$(cat run.out)" "metrics: cannot listen at 127.0.0.1 port $port"
tap_run_fails "an invalid --metrics: usage error" 2 "$WEFT_BIN" server --security none --metrics here
tap_like "the error has the value" "$(cat run.out)" '"here" is not allowed; it must be PORT or HOST:PORT'

tap_done
