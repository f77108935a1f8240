#!/bin/sh
# /metrics and /hot of servers and workers: the format, the names against docs/METRICS.md and the
# dashboard, the counts, and a real Prometheus that scrapes them. The test waits for conditions, not times.
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

# status_as <host> <url>: status of a request with this Host header; "" = none
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

tap_run "a server says where its metrics are" serve
at=$(sed -n 's/^metrics: //p' server.out)
tap_like "on loopback" "$at" '^http://127\.0\.0\.1:[0-9]*/metrics$'
for host in localhost 127.0.0.1:9101 node7:9101 NODE8 192.0.2.7 ''; do
    tap_is "it answers Host '$host'" "$(status_as "$host" "$at")" "200 "
done
for host in attacker.example node7.attacker.example 192.0.2.8; do
    tap_like "it refuses Host $host" "$(status_as "$host" "$at")" '^403 .*--metrics-host NAME'
    tap_like "for hot rows, too" "$(status_as "$host" "${at%metrics}hot")" '^403 '
done
"$WEFT_BIN" server --metrics 0 --metrics-host 'a b' >refused.out 2>&1
tap_is "no name" "$? $(grep -c 'names or addresses with commas' refused.out)" "2 1"
tap_run "a worker trains" work
tap_run "its epochs are counted" tap_until is_training
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

# asked <expression> <jq condition on the value>
asked() {
    address=$(sed -n 's/.*msg="Listening on" address=\([0-9.:]*\).*/\1/p' prometheus.out)
    python3 -c 'import sys, urllib.parse, urllib.request
sys.stdout.write(urllib.request.urlopen("http://%s/api/v1/query?%s" % (sys.argv[1],
    urllib.parse.urlencode({"query": sys.argv[2]})), timeout=60).read().decode())' \
        "$address" "$1" >answer.json &&
        jq -e ".data.result[0].value[1] | tonumber | $2" answer.json >/dev/null
}

if command -v prometheus >/dev/null; then
    tap_run "a Prometheus" start_prometheus
    tap_run "scrapes the server" tap_until asked "up{instance=\"127.0.0.1:$port\"}" '. == 1'
    tap_run "knows its workers" tap_until asked 'sum(weft_workers_connected)' '. >= 2'
    tap_run "and quantiles of its latencies" tap_until asked \
        'histogram_quantile(0.99, sum by (le) (weft_served_latency_seconds_bucket{part="ps_proc"}))' \
        '. > 0'
else
    tap_skip "a Prometheus scrapes" "no prometheus: install it"
fi
# Enough was pushed; stop the load for the following cases.
kill "$worker"

# ---- a coordinator and a job ---------------------------------------------------------------------

"$WEFT_BIN" coordinator --security none --port 0 --workers 1 --shards 1 --metrics 0 >coordinator.out \
    2>coordinator.err &
coordinator=$!
tap_run "a coordinator says where its metrics are" tap_until grep -q '^metrics: ' coordinator.out
fetch "$(sed -n 's/^metrics: //p' coordinator.out)" >coordinator.txt
tap_is "it knows of its job" "$(value coordinator.txt weft_job_workers)" 1
kill "$coordinator"

"$WEFT_BIN" server --security none --port 0 --workers 1 --shards 1 --coordinate 0 --metrics 0 \
    >both.out 2>both.err &
coordinator=$!
tap_run "a server that is the coordinator, too" tap_until grep -q '^metrics: ' both.out
tap_run "knows of the job" tap_until at_least 1 "$(sed -n 's/^metrics: //p' both.out)" weft_job_workers
cp scrape.txt both.txt
tap_is "and of its shard" "$(value both.txt weft_workers_connected shard=0)" 0
tap_is "no family comes twice" "$(grep '^# TYPE' both.txt | sort | uniq -d)" ""
kill "$coordinator"

"$WEFT_BIN" scheduler --security none --port 0 --workers 1 --shards 1 --metrics 0 >sched.out 2>sched.err &
scheduler=$!
tap_run "a scheduler says where its metrics are" tap_until grep -q '^metrics: ' sched.out
fetch "$(sed -n 's/^metrics: //p' sched.out)" >sched.txt
tap_is "nobody has asked it yet" "$(value sched.txt weft_sched_updates_total)" 0
kill "$scheduler"

"$WEFT_BIN" aggregate --security none --listen 127.0.0.1:0 --metrics 0 \
    --servers "$(sed -n 's/^shard.*: //p' server.out | paste -sd,)" >aggregate.out 2>aggregate.err &
aggregator=$!
tap_run "an aggregator says where its metrics are" tap_until grep -q '^metrics: ' aggregate.out
tap_run "it finds its server" tap_until at_least 1 "$(sed -n 's/^metrics: //p' aggregate.out)" \
    weft_aggregator_server_up shard=1
cp scrape.txt aggregate.txt
tap_is "and has no workers" "$(value aggregate.txt weft_aggregator_workers shard=0)" 0
"$WEFT_BIN" aggregate --dense 127.0.0.1:0 --members 2 --security none --metrics 0 >box.out 2>box.err &
box=$!
tap_run "so does a box" tap_until grep -q '^metrics: ' box.out
fetch "$(sed -n 's/^metrics: //p' box.out)" >box.txt
kill "$box"
wait "$box"
tap_is "which has got nothing yet" "$(value box.txt weft_box_packets_total)" 0
kill "$aggregator"

"$WEFT_BIN" train --servers 1 --workers 1 --epochs 10000 --metrics 0 --metrics-host node9 >train.out 2>train.err &
train=$!
tap_run "so does weft train" tap_until grep -q '^metrics: ' train.out
at=$(sed -n 's/^metrics: //p' train.out)
tap_run "its processes become ready" tap_until at_least 1 "$at" weft_train_processes role=worker
tap_run "and finish epochs" tap_until at_least 1 "$at" weft_train_epochs_total
cp scrape.txt train.txt
fetch "${at%/metrics}/targets" >targets.json
tap_like "not for another site" "$(status_as attacker.example "${at%metrics}targets")" '^403 '
tap_is "but by a name that was given" "$(status_as node9 "${at%metrics}targets")" "200 "
tap_is "which its worker has, too" \
    "$(status_as node9 "http://$(jq -r '.[1].targets[0]' targets.json)/metrics")" "200 "
# shellcheck disable=SC2016 # jq's
tap_run "Prometheus can find them" jq -e 'map(.labels.role) == ["server", "worker"] and
    all(.targets | length == 1 and (.[0] | test("^127.0.0.1:[0-9]+$")))' targets.json
top_at=${at#http://}
# found <line>: true if weft top shows it after all processes have replied in time
found() {
    "$WEFT_BIN" top --once "${top_at%/metrics}" >top.txt
    grep -q "$1" top.txt
}
tap_run "and weft top does" tap_until found "^weft top: 1 server, 1 worker, 0 gone"
kill "$train"
wait "$train" 2>/dev/null

# A worker dies and is restarted.
# shellcheck disable=SC2016 # the child's shell shall expand it
"$WEFT_BIN" run --metrics 0 --restart 1 --security none -n 1 -s 1 -- sh -c \
    'test "$WEFT_RESTART" = 1 || exit 3
    until test -e over; do sleep 0.1; done' >job.out 2>job.err &
job=$!
tap_run "so does weft run" tap_until grep -q '^weft run: metrics: ' job.err
at=$(sed -n 's/^weft run: metrics: //p' job.err)
tap_run "it counts a death" tap_until at_least 1 "$at" weft_run_deaths_total role=worker
tap_run "and who came after it" tap_until at_least 2 "$at" weft_run_starts_total role=worker
cp scrape.txt job.txt
tap_is "who runs" "$(value job.txt weft_run_processes)" 3
fetch "${at%/metrics}/targets" >targets.json
tap_run "Prometheus can find the others" jq -e 'map(.labels.role) == ["coordinator", "server"]' \
    targets.json
top_at=${at#http://}
tap_run "and so can weft top" tap_until found "^weft top: 1 server, 0 workers, 0 gone"
tap_like "the coordinator, too" "$(cat top.txt)" "^COORDINATOR"
: >over
wait "$job"
tap_is "the job ends in order" $? 0

"$WEFT_BIN" load --local 1 --workers 3 --rows 4 --dim 4 --warmup 0 --seconds 3600 --metrics 0 \
    >load.out 2>load.err &
load=$!
tap_run "weft load says where, too" tap_until grep -q '^metrics: ' load.err
at=$(sed -n 's/^metrics: //p' load.err)
tap_run "its workers push" tap_until at_least 1 "$at" weft_client_messages_total kind=push
tap_run "and pull" tap_until at_least 1 "$at" weft_load_request_latency_seconds_count kind=pull
cp scrape.txt load.txt
tap_run "all of them" tap_until at_least 3 "$at" weft_load_workers state=connected
top_at=${at#http://}
tap_run "weft top has a line for it" tap_until found "^${top_at%/metrics}  *3 "
kill "$load"
wait "$load"
tap_is "a scrape does not keep it from ending" $? 0

"$WEFT_BIN" perf incast --security none --senders 2 --rounds 1000000 --bytes 4000 --gap 1 --give-up 600 \
    --metrics 0 >perf.out 2>perf.err &
perf=$!
tap_run "weft perf says where" tap_until grep -q '^metrics: ' perf.err
at=$(sed -n 's/^metrics: //p' perf.err)
tap_run "rounds are counted" tap_until at_least 1 "$at" weft_perf_rounds_total phase=measured
tap_run "and what each participant has got" tap_until at_least 6 "$at" weft_messages_received_total \
    participant=0
cp scrape.txt perf.txt
top_at=${at#http://}
tap_run "weft top knows it" tap_until found "^${top_at%/metrics}  *perf"
kill "$perf"
wait "$perf"
tap_like "it ends with what it has" "$(cat perf.out)" "rounds"

"$WEFT_BIN" sim swarm --seeds 1..1000000 --metrics 0 >sim.out 2>sim.err &
sim=$!
tap_run "weft sim says where" tap_until grep -q '^metrics: ' sim.err
tap_run "seeds are counted" tap_until at_least 1 "$(sed -n 's/^metrics: //p' sim.err)" \
    weft_sim_runs_total result=good
cp scrape.txt sim.txt
kill "$sim"
wait "$sim" 2>/dev/null
at=$(sed -n 's/^metrics: //p' server.out)

# ---- the format and the names ------------------------------------------------------------------

tap_run "the server's text keeps the format" python3 "$check" format server.txt
tap_run "the worker's text keeps the format" python3 "$check" format worker.txt
if command -v promtool >/dev/null; then
    tap_run "promtool has nothing to say of the server's" promtool check metrics <server.txt
    tap_is "nothing" "$(cat run.out)" ""
    tap_run "nor of the worker's" promtool check metrics <worker.txt
    tap_is "nothing" "$(cat run.out)" ""
else
    tap_skip "promtool" "no promtool: install prometheus"
fi
tap_run "the coordinator's text keeps the format" python3 "$check" format coordinator.txt
tap_run "the scheduler's keeps it" python3 "$check" format sched.txt
tap_run "the aggregator's keeps it" python3 "$check" format aggregate.txt
tap_run "and the box's" python3 "$check" format box.txt
tap_run "that of weft train keeps it" python3 "$check" format train.txt
tap_run "and that of weft run" python3 "$check" format job.txt
tap_run "and that of weft load" python3 "$check" format load.txt
tap_run "and that of weft perf" python3 "$check" format perf.txt
tap_run "and that of weft sim" python3 "$check" format sim.txt
python3 "$check" names server.txt worker.txt coordinator.txt sched.txt aggregate.txt box.txt train.txt job.txt load.txt \
    perf.txt sim.txt >names.txt
sed -n 's/^| `\([a-z_]*\)` | \(counter\|gauge\|histogram\) .*/\1/p' "$WEFT_SOURCE_ROOT/docs/METRICS.md" |
    sort >documented.txt
tap_is "docs/METRICS.md has every name, and no other" "$(cat documented.txt)" "$(cat names.txt)"

# ---- the dashboard -----------------------------------------------------------------------------

dashboard=$WEFT_SOURCE_ROOT/examples/grafana/weft.json
python3 "$check" dashboard "$dashboard" >used.txt
tap_is "every panel asks for something that is there" "$(comm -13 names.txt used.txt)" ""
tap_is "there are panels" "$(($(wc -l <used.txt) > 15))" 1
if command -v promtool >/dev/null; then
    # shellcheck disable=SC2016 # jq's
    jq '{groups: [{name: "weft", rules: [.panels[].targets[].expr |
        gsub("\\$__rate_interval"; "1m") | gsub("\\$instance"; ".*") |
        {record: "a:b", expr: .}] | to_entries |
        map({record: "a:b\(.key)", expr: .value.expr})}]}' "$dashboard" >rules.yml
    tap_run "and Prometheus can read the questions" promtool check rules rules.yml
else
    tap_skip "Prometheus can read the questions" "no promtool: install prometheus"
fi

# ---- counts ------------------------------------------------------------------------------------

# of <kind>: numbers of requests and of latencies in one scrape
same() { [ "$(value server.txt weft_requests_total kind="$1")" -ge \
    "$(value server.txt weft_served_latency_seconds_count kind="$1" part=ps_proc)" ]; }
tap_run "no latency without a push" same push
tap_run "no latency without a pull" same pull
pushed=$(value server.txt weft_table_updates_total)
applied=$(value server.txt weft_updates_applied_total)
tap_is "updates of rows are the gradients that were applied" "$pushed" "$applied"

# ---- /hot --------------------------------------------------------------------------------------

fetch "${at%/metrics}/hot?table=0&k=7" >hot.json
# shellcheck disable=SC2016 # jq's
tap_run "the hottest rows, most first" jq -e '.is_declared and .exact and .shards_answered == 2 and
    (.rows | length) == 7 and (.rows | map(.updates) | . == (sort | reverse)) and
    ([.rows[].shard] | unique | length) <= 2 and (.rows | map(.id) | unique | length) == 7 and
    .updates >= (.rows | map(.updates) | add)' hot.json
fetch "${at%/metrics}/hot?table=3" >none.json
tap_run "a table that does not exist" jq -e '(.is_declared | not) and .rows == [] and .updates == 0' none.json

# ---- refusals ----------------------------------------------------------------------------------

tap_run_fails "a port that is taken" 1 timeout 300 "$WEFT_BIN" server --security none --port 0 \
    --metrics "$port"
tap_like "is said" "$(cat run.out)" "metrics: cannot listen at 127.0.0.1 port $port"
tap_run_fails "no port" 2 "$WEFT_BIN" server --security none --metrics here
tap_like "is said" "$(cat run.out)" '"here" is not allowed; it must be PORT or HOST:PORT'

tap_done
