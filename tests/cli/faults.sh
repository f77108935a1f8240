#!/bin/sh
# Faults around a run: killed processes, Ctrl-C, noise, bad files. Each run ends with an error that names
# the cause, and leaves no process and no report.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR
data=$WEFT_SOURCE_ROOT/data/adult/adult.data.zst

# start [options]: a long run in the background, until it trains. Sets $train.
start() {
    rm -f "$tap_tmp/report.json"
    : >"$tap_tmp/log" # now: the background shell truncates it when it gets to run
    "$WEFT_BIN" train --data "$data" --epochs 10000 --report "$tap_tmp/report.json" "$@" \
        >"$tap_tmp/log" 2>&1 &
    train=$!
    tap_until grep -q '^epoch 1/' "$tap_tmp/log"
}

# pid_of <role> <rank>
pid_of() {
    sed -n "s/^$1 $2: pid //p" "$tap_tmp/log"
}

# is_gone <pid>: true also for a zombie.
is_gone() {
    ! grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null
}

# ended <name> <exit status> <sentence>: check how the run has ended.
ended() {
    status=0
    wait "$train" || status=$?
    tap_is "$1: exit status" "$status" "$2"
    tap_like "$1: the error says why" "$(grep '^weft train: ' "$tap_tmp/log")" "$3"
    left=
    for pid in $(sed -n 's/^[a-z]* [0-9]*: pid //p' "$tap_tmp/log"); do
        tap_until is_gone "$pid" || left="$left $pid"
    done
    tap_is "$1: no process is left" "$left" ""
    tap_is "$1: no report is written" "$(find "$tap_tmp" -name 'report.json*')" ""
}

# ---- killed processes ----
for role in worker server; do
    start
    pid=$(pid_of "$role" 1)
    kill -9 "$pid"
    ended "$role killed" 1 "$role 1 (pid $pid) was killed by signal 9"
done

# A server that hangs is handled like a dead one.
start --peer-timeout 10
pid=$(pid_of server 0)
kill -STOP "$pid"
ended "server stopped" 1 'the server of shard 0 at 127.0.0.1:[0-9]* is gone: .*not answered'

# ---- interrupted ----
for signal in INT TERM; do
    start
    kill -s "$signal" "$train"
    ended "SIG$signal" 1 'interrupted by signal'
done

# No process survives the parent, however it ends.
start
kill -9 "$train"
status=0
wait "$train" 2>/dev/null || status=$?
left=
for pid in $(sed -n 's/^[a-z]* [0-9]*: pid //p' "$tap_tmp/log"); do
    tap_until is_gone "$pid" || left="$left $pid"
done
tap_is "the parent is killed: no process is left" "$left" ""

# ---- a port in use ----
: >"$tap_tmp/server"
"$WEFT_BIN" keygen "$tap_tmp/job.key" >"$tap_tmp/keygen"
"$WEFT_BIN" server --key-file "$tap_tmp/job.key" --port 0 --workers 1 >"$tap_tmp/server" &
server=$!
tap_until [ -s "$tap_tmp/server" ]
port=$(sed -n 's/^shard 0 of 1: .*://p' "$tap_tmp/server")
tap_run_fails "a port in use: exit status 1" 1 "$WEFT_BIN" train --data "$data" --servers 1 --port "$port"
tap_like "the error names the server and the port" "$(cat "$tap_tmp/run.out")" "weft train: server 0 .*$port.*in use"
kill "$server"
wait "$server"
tap_run_fails "a worker without a server: exit status 1" 1 "$WEFT_BIN" worker \
    --key-file "$tap_tmp/job.key" --servers "127.0.0.1:$port" --peer-timeout 5
tap_like "the error names the address" "$(cat "$tap_tmp/run.out")" "127.0.0.1:$port is gone: it has not answered for 5 s; nothing listens at 127.0.0.1:$port: start"

# ---- a table with a small byte limit: new rows are rejected, and the worker reports it ----
"$WEFT_BIN" server --key-file "$tap_tmp/job.key" --port 0 --workers 1 --table-bytes 1000 \
    >"$tap_tmp/server3" &
server=$!
tap_until [ -s "$tap_tmp/server3" ]
port=$(sed -n 's/^shard 0 of 1: .*://p' "$tap_tmp/server3")
tap_run_fails "a full table: the worker exits with 1" 1 "$WEFT_BIN" worker \
    --key-file "$tap_tmp/job.key" --servers "127.0.0.1:$port" --workers 1
tap_like "the worker's error says so" "$(cat "$tap_tmp/run.out")" "no room for new rows"
kill "$server"
wait "$server"
tap_run "the server stays within the limit and counts the rejected rows" sh -c \
    "sed 1d '$tap_tmp/server3' | jq -e '.table_bytes <= 1000 and .table_rows > 5 and
        .table_rows == .table_rows_created and .shard_rows_refused > 0'"

# ---- a server with another clock of a worker ends that worker, whatever it waits for ----
mkfifo "$tap_tmp/open"
for mode in bsp asp; do
    : >"$tap_tmp/forgetful"
    "$WEFT_FORGETFUL_BIN" <"$tap_tmp/open" >"$tap_tmp/forgetful" &
    server=$!
    exec 3>"$tap_tmp/open"
    tap_until [ -s "$tap_tmp/forgetful" ]
    tap_run_fails "a rejected clock: the worker exits with 1 ($mode)" 1 "$WEFT_BIN" worker --security none \
        --servers "127.0.0.1:$(cat "$tap_tmp/forgetful")" --workers 1 --mode $mode --batch 1000 --peer-timeout 60
    tap_like "the worker's error says what to do ($mode)" "$(cat "$tap_tmp/run.out")" \
        "refused clock .* end the other process, or restart the job"
    exec 3>&-
    wait "$server"
done

# ---- a server is killed while its worker waits for another worker: no reply is due, so a probe
# detects it ----
"$WEFT_BIN" server --key-file "$tap_tmp/job.key" --port 0 --workers 2 >"$tap_tmp/server2" &
server=$!
tap_until [ -s "$tap_tmp/server2" ]
port=$(sed -n 's/^shard 0 of 1: .*://p' "$tap_tmp/server2")
"$WEFT_BIN" worker --key-file "$tap_tmp/job.key" --data "$data" --workers 2 --rank 0 \
    --servers "127.0.0.1:$port" --keepalive-ms 200 --peer-timeout 10 >"$tap_tmp/waits.out" 2>&1 &
worker=$!
tap_until grep -q ready "$tap_tmp/waits.out"
sleep 1
kill -KILL "$server"
wait "$server"
tap_until is_gone "$worker"
status=0
wait "$worker" || status=$?
tap_is "a waiting worker detects the death of its server" "$status" 1
tap_like "its error names the server" "$(cat "$tap_tmp/waits.out")" \
    "127.0.0.1:$port is gone: it has not answered"

# ---- random datagrams to a server's port: they are counted, and the result is correct ----
cat >"$tap_tmp/noise.awk" <<'AWK'
# Bytes of every class and length; they depend only on the seed.
BEGIN {
    srand(seed)
    first = 16 * (rand() < 0.8) + int(16 * rand())
    printf "%c", first == 0 ? 16 : first
    for (n = int(rand() * 1400); n > 0; n--) printf "%c", 1 + int(255 * rand())
}
AWK
echo "# noise: awk seeds 1 to 40"
# noisy <epochs>: a run; sets in_time to 0 if it ended before all datagrams were sent
noisy() {
    : >"$tap_tmp/log"
    "$WEFT_BIN" train --data "$data" --loss-bound 0 --epochs "$1" --servers 1 \
        --report "$tap_tmp/noise.json" >"$tap_tmp/log" 2>&1 &
    train=$!
    tap_until grep -q '^training on' "$tap_tmp/log"
    port=$(sed -n 's/^shards: 127.0.0.1:\([0-9]*\)$/\1/p' "$tap_tmp/log")
    seed=1
    while [ "$seed" -le 40 ]; do
        LC_ALL=C awk -v seed="$seed" -f "$tap_tmp/noise.awk" >"$tap_tmp/noise"
        # dd sends the file as one datagram.
        bash -c 'dd if="$1" bs=2000 status=none >"/dev/udp/127.0.0.1/$2"' noise "$tap_tmp/noise" "$port"
        seed=$((seed + 1))
    done
    in_time=1
    ! grep -q "^epoch $1/" "$tap_tmp/log" || in_time=0
    wait "$train"
}
status=0
noisy 60 || status=$?
for epochs in 300 1500; do # retried with more epochs in case this shell was suspended
    [ "$status" = 0 ] && [ "$in_time" = 0 ] || continue
    noisy $epochs || status=$?
done
tap_is "a run with random datagrams exits with 0" "$status" 0
tap_run "its AUC is above 0.90, and everything is delivered" jq -e '.test_auc > 0.90 and .delivered_fraction == 1 and
    .messages_short == 0' "$tap_tmp/noise.json"
tap_run "every random datagram was dropped and counted" jq -e '.counters |
    .bad_short + .bad_version + .bad_class + .bad_peer + .bad_packet + .hello_refused +
    .bad_mode + .bad_tag + .bad_key + .refused + .unknown_received >= 40' \
    "$tap_tmp/noise.json"

# ---- data files ----
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "%d,Private,%d,9th,5,Divorced,Sales,Wife,White,Male," \
    "0,0,40,United-States,%s50K\n", 17 + i % 70, i, i % 3 ? "<=" : ">" }' >"$tap_tmp/good.csv"
sed '1234s/,/;/' "$tap_tmp/good.csv" >"$tap_tmp/malformed.csv"
head -c 100000 "$data" >"$tap_tmp/truncated.zst"
: >"$tap_tmp/empty.csv"
mkdir "$tap_tmp/folder"
refuses() { # refuses <name> <sentence> <options...>
    name=$1
    sentence=$2
    shift 2
    tap_run_fails "$name" 1 "$WEFT_BIN" train --epochs 1 --report "$tap_tmp/report.json" "$@"
    tap_like "$name: the error says why" "$(cat "$tap_tmp/run.out")" "$sentence"
}
tap_run "training on the intact file succeeds" "$WEFT_BIN" train --epochs 1 --data "$tap_tmp/good.csv"
refuses "malformed file" 'malformed\.csv:1234: ' --data "$tap_tmp/malformed.csv"
refuses "truncated file" 'truncated\.zst:[0-9]*: ' --data "$tap_tmp/truncated.zst"
refuses "empty file" 'empty\.csv: ' --data "$tap_tmp/empty.csv"
refuses "missing file" 'no data file "nosuch"' --data nosuch
refuses "a directory" 'no data file\|directory' --data "$tap_tmp/folder"
refuses "the wrong format" 'good\.csv:1: ' --data "$tap_tmp/good.csv" --format libsvm
printf '1 1:1\n' >"$tap_tmp/one.libsvm"
refuses "a file of one row" 'one\.libsvm: ' --data "$tap_tmp/one.libsvm" --format libsvm
refuses "a model that diverges" 'training diverged\|infinite or not a number' --data "$data" --optimizer sgd --lr 1e38
refuses "a report in a directory that does not exist" 'cannot write ' --data "$data" --report "$tap_tmp/no/report.json"
tap_is "no report is written by any of these" "$(find "$tap_tmp" -name 'report.json*')" ""

tap_done
