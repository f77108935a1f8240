#!/bin/sh
# `weft aggregate`: workers that push through it (`weft worker`, `weft train`, Python), an aggregator
# that is killed during the run, and usage errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB WEFT_VIA
tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY

port_of() {
    sed -n 's/^shard 0.*:\([0-9]*\)$/\1/p' "$1"
}

# begin [options of the aggregator]: a server and an aggregator, $server and $aggregator.
begin() {
    rm -f server.out aggregate.out 0.out 1.out
    "$WEFT_BIN" server --port 0 --workers 2 >server.out 2>server.err &
    server=$!
    tap_until tap_lines 1 '^shard .*:' server.out
    "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 2 --json --flush-age-us 20000 \
        --servers "127.0.0.1:$(port_of server.out)" "$@" >aggregate.out 2>aggregate.err &
    aggregator=$!
    tap_until tap_lines 1 '^shard .*:' aggregate.out
}

# work <rank> <epochs>: a worker in the background.
work() {
    "$WEFT_BIN" worker --servers "127.0.0.1:$(port_of server.out)" --workers 2 --rank "$1" \
        --via "127.0.0.1:$(port_of aggregate.out)" --epochs "$2" --batch 512 >"$1.out" 2>"$1.err" &
}

# figure <name> <file>
figure() {
    sed -n "s/.*\"$1\":[[:space:]]*\([0-9]*\).*/\1/p" "$2"
}

# over_10 <file> <names ...>: true if each of these figures is above 10
over_10() {
    file=$1
    shift
    for name in "$@"; do
        [ "$(figure "$name" "$file")" -gt 10 ] || return 1
    done
}

# job <epochs> [options of the aggregator]: a job of two workers from start to end; sets the exit statuses $first, $second
# and $ended, of the aggregator. False if one is not 0.
job() {
    epochs=$1
    shift
    begin "$@"
    work 0 "$epochs"
    first=$!
    work 1 "$epochs"
    second=$!
    wait "$first"
    first=$?
    wait "$second"
    second=$?
    kill "$aggregator"
    wait "$aggregator"
    ended=$?
    kill "$server"
    wait "$server"
    [ "$first $second $ended" = "0 0 0" ]
}

# Workers push directly until the aggregator replies. On a busy machine a short job may end before; it is then
# repeated with more epochs. So are some others below. A job that fails is not repeated.
for epochs in 1 8 64; do
    job $epochs || break
    ! over_10 aggregate.out pushes_absorbed clocks_passed pulls_answered || break
done
tap_is "the first worker exits with 0" $first 0
tap_is "the second worker exits with 0" $second 0
tap_is "the aggregator exits with 0" $ended 0
tap_is "every push at the aggregator was absorbed" "$(figure pushes_absorbed aggregate.out)" "$(figure pushes_in aggregate.out)"
tap_is "it absorbed more than 10 pushes" "$(($(figure pushes_absorbed aggregate.out) > 10))" 1
tap_is "it sent fewer rows than it received" \
    "$(($(figure rows_out aggregate.out) < $(figure rows_in aggregate.out)))" 1
tap_is "the workers' clocks passed through it" "$(($(figure clocks_passed aggregate.out) > 10))" 1
tap_is "it combined clocks in messages" \
    "$(($(figure clocks_out aggregate.out) < $(figure clocks_passed aggregate.out)))" 1
tap_is "it answered more than 10 pulls" "$(($(figure pulls_answered aggregate.out) > 10))" 1
tap_is "it requested fewer rows than the workers pulled" \
    "$(($(figure pull_rows_fetched aggregate.out) < $(figure pull_rows_in aggregate.out)))" 1

# ---- acknowledgement on apply --------------------------------------------------------------------

for epochs in 1 8 64; do
    job $epochs --acknowledge apply || break
    ! over_10 aggregate.out pushes_applied || break
done
tap_is "--acknowledge apply: the first worker exits with 0" $first 0
tap_is "--acknowledge apply: the second worker exits with 0" $second 0
tap_is "--acknowledge apply: the aggregator exits with 0" $ended 0
tap_is "it acknowledged pushes on apply" "$(($(figure pushes_applied aggregate.out) > 10))" 1
tap_is "all that it acknowledged were absorbed, and none lost" \
    "$(figure pushes_absorbed aggregate.out) $(figure pushes_lost aggregate.out)" "$(figure pushes_in aggregate.out) 0"

rm -f server.out aggregate.out
mkdir checkpoints journal
"$WEFT_BIN" server --port 0 --workers 2 --checkpoint checkpoints --journal journal >server.out 2>server.err &
server=$!
tap_until tap_lines 1 '^shard .*:' server.out
"$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 2 --acknowledge apply \
    --servers "127.0.0.1:$(port_of server.out)" >aggregate.out 2>aggregate.err &
aggregator=$!
tap_until tap_lines 1 '^shard .*:' aggregate.out
work 0 2
first=$!
wait "$aggregator"
tap_is "--acknowledge apply and a server with --journal: exit status 1" $? 1
tap_like "the error says what to do" "$(cat aggregate.err)" \
    'server of shard 0 has a --journal.*Start this aggregator with --acknowledge commit, or'
kill "$first" "$server"
wait "$first" "$server"
tap_run_fails "--acknowledge with another value is rejected" 2 "$WEFT_BIN" aggregate --acknowledge never \
    --servers 127.0.0.1:7821

# ---- a second one with the same number -----------------------------------------------------------

# absorbs <n>: true if servers have committed more than n pushes of the aggregator.
absorbs() {
    python3 - "$(sed -n 's/^metrics: //p' aggregate.out)" "$1" <<'END'
import re, sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=60) as metrics:
    counts = re.findall(r"^weft_aggregator_pushes_absorbed_total{.*} (\S+)$", metrics.read().decode(), re.MULTILINE)
sys.exit(sum(map(float, counts)) <= float(sys.argv[2]))
END
}

# The first one must be active: an aggregator without a request for a second can be replaced. So its workers train until
# the end of this case.
begin --metrics 127.0.0.1:0
work 0 10000
first=$!
work 1 10000
last=$!
tap_until absorbs 10
"$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 2 --json \
    --servers "127.0.0.1:$(port_of server.out)" >second.out 2>second.err &
second=$!
tap_run "a second aggregator with its number is rejected, and reports it" \
    tap_until grep -q 'has another aggregator with number 0; end that one, or give' second.err
kill "$first" "$last"
wait "$first" "$last"
kill "$second" "$aggregator"
wait "$second"
wait "$aggregator"
tap_is "the first one absorbed pushes" "$(($(figure pushes_absorbed aggregate.out) > 10))" 1
tap_is "the second one sent no sums" "$(figure aggregates_out second.out)" 0
kill "$server"
wait "$server"

begin
work 0 30
first=$!
work 1 30
second=$!
tap_until tap_lines 1 '"epoch":1' 0.out
kill -9 "$aggregator"
wait "$first"
tap_is "the aggregator is killed: the first worker exits with 0" $? 0
wait "$second"
tap_is "the aggregator is killed: the second worker exits with 0" $? 0
kill "$server"
wait "$server"

# ---- weft train --via ----------------------------------------------------------------------------

# counter <name> <report>
counter() {
    jq ".counters.$1" "$2"
}

more_than_half() {
    [ "$(counter aggregator_pushes_in on.json)" -gt $(($(counter shard_pushes on.json) / 2)) ]
}
via_on() {
    for epochs in 1 8 64; do
        "$WEFT_BIN" train --via on --workers 3 --servers 2 --epochs $epochs --loss-bound 0 --report on.json || return
        ! more_than_half || return 0
    done
}
tap_run "weft train --via on starts an aggregator" via_on
tap_is "every push at the aggregator was absorbed" "$(counter aggregator_pushes_absorbed on.json)" \
    "$(counter aggregator_pushes_in on.json)"
tap_run "more than half of the workers' pushes were sent through it" more_than_half
tap_run "the AUC is above 0.90, and everything is delivered" jq -e '.test_auc > 0.90 and .delivered_fraction == 1' on.json

for epochs in 60 600 6000; do # a job that ends before the kill is repeated with more epochs
    : >killed.out # here: the background shell empties it only when it gets to run
    "$WEFT_BIN" train --via on --workers 2 --servers 1 --epochs $epochs --report killed.json >killed.out 2>&1 &
    train=$!
    tap_until tap_lines 1 '^epoch 1/' killed.out
    kill -9 "$(sed -n 's/^aggregator 0: pid //p' killed.out)"
    wait "$train"
    status=$?
    [ $status -eq 0 ] || break
    ! grep -q '; workers push to the servers directly$' killed.out || break
done
tap_is "its aggregator is killed: weft train exits with 0" $status 0
tap_like "weft train reports it" "$(cat killed.out)" '^aggregator (pid [0-9]*) .*; workers push to the servers directly$'

port=$(tap_port)
serving=$(tap_port)
"$WEFT_BIN" aggregate --listen "127.0.0.1:$port" --workers 2 --json --servers "127.0.0.1:$serving" \
    >named.out 2>named.err &
aggregator=$!
tap_until tap_lines 1 '^shard .*:' named.out
tap_run "weft train --via HOST:PORT uses a running aggregator" "$WEFT_BIN" train --via "127.0.0.1:$port" --workers 2 \
    --servers 1 --port "$serving" --epochs 2 --key-file job.key
kill "$aggregator"
wait "$aggregator"
tap_is "it absorbed pushes" "$(($(figure pushes_absorbed named.out) > 10))" 1

if [ -w /dev/full ]; then
    for form in --json --pulls=0; do
        port=$(tap_port)
        "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --metrics "127.0.0.1:$port" --servers 127.0.0.1:9 "$form" \
            >/dev/full 2>full.err &
        aggregator=$!
        tap_until grep -q "$(printf ':%04X 00000000:0000 0A' "$port")" /proc/net/tcp # it listens
        kill "$aggregator"
        wait "$aggregator"
        tap_is "a report that cannot be written: exit status 1, $form" "$?" 1
        tap_like "the error says so, $form" "$(cat full.err)" '^weft aggregate: .*standard output'
    done
else
    tap_skip "a report that cannot be written: exit status 1" "no /dev/full"
fi

"$WEFT_BIN" train --via off >usage.out 2>&1
tap_is "--via off: usage error" $? 2
tap_like "the error has the valid values" "$(cat usage.out)" '"off" is neither on nor the HOST:PORT'

# ---- more than two aggregators -------------------------------------------------------------------

numbered() {
    for epochs in 1 8 64; do
        rm -f server.out aggregate.out
        "$WEFT_BIN" server --port 0 --workers 1 --aggregators 3 >server.out 2>server.err &
        server=$!
        tap_until tap_lines 1 '^shard .*:' server.out
        "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --number 2 --workers 1 --json \
            --servers "127.0.0.1:$(port_of server.out)" >aggregate.out 2>aggregate.err &
        aggregator=$!
        tap_until tap_lines 1 '^shard .*:' aggregate.out
        status=0
        "$WEFT_BIN" worker --workers 1 --rank 0 --epochs $epochs --servers "127.0.0.1:$(port_of server.out)" \
            --via "127.0.0.1:$(port_of aggregate.out)" || status=$?
        kill "$aggregator"
        wait "$aggregator" || status=$?
        kill "$server"
        wait "$server"
        [ $status -eq 0 ] || break
        ! over_10 aggregate.out pushes_absorbed || break
    done
    return $status
}
tap_run "a worker pushes through aggregator number 2 of 3" numbered
tap_run "that aggregator absorbed its pushes" over_10 aggregate.out pushes_absorbed
tap_run_fails "--aggregators 0 is rejected" 2 "$WEFT_BIN" server --aggregators 0

# ---- a tree --------------------------------------------------------------------------------------

# tree <epochs>: a job from start to end; sets the exit statuses $first, $second and $ended, of the aggregators, and
# $reported to 0 if a child too many is reported. False if one is not 0.
tree() {
    rm -f server.out root.out left.out right.out 0.out 1.out third.err
    "$WEFT_BIN" server --port 0 --workers 2 --aggregators 1 >server.out 2>server.err &
    server=$!
    tap_until tap_lines 1 '^shard .*:' server.out
    "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 2 --children 3 --json --flush-age-us 20000 \
        --servers "127.0.0.1:$(port_of server.out)" >root.out 2>root.err &
    root=$!
    tap_until tap_lines 1 '^shard .*:' root.out
    for side in left right; do
        number=1
        [ "$side" = right ] && number=2
        "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 2 --number "$number" --json \
            --flush-age-us 20000 --parent "127.0.0.1:$(port_of root.out)" >"$side.out" 2>"$side.err" &
        eval "$side=\$!"
        tap_until tap_lines 1 '^shard .*:' "$side.out"
    done
    for rank in 0 1; do
        side=left
        [ "$rank" = 1 ] && side=right
        "$WEFT_BIN" worker --servers "127.0.0.1:$(port_of server.out)" --workers 2 --rank "$rank" \
            --via "127.0.0.1:$(port_of "$side.out")" --epochs "$1" --batch 512 >"$rank.out" 2>"$rank.err" &
        eval "worker$rank=\$!"
    done
    # shellcheck disable=SC2154
    wait "$worker0"
    first=$?
    # shellcheck disable=SC2154
    wait "$worker1"
    second=$?
    "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --number 3 --parent "127.0.0.1:$(port_of root.out)" \
        >/dev/null 2>third.err &
    third=$!
    tap_until grep -q 'give it --children 4' third.err
    reported=$?
    # shellcheck disable=SC2154
    kill "$third" "$left" "$right" "$root" "$server"
    wait "$third" "$server"
    ended=0
    for pid in "$left" "$right" "$root"; do
        wait "$pid" || ended=$?
    done
    [ "$first $second $ended $reported" = "0 0 0 0" ]
}
# left_absorbed: true if the left child absorbed more than 80 % of its pushes
left_absorbed() {
    [ $((10 * $(figure pushes_absorbed left.out))) -gt $((8 * $(figure pushes_in left.out))) ]
}
for epochs in 2 16 128; do
    tree $epochs || break
    ! { over_10 root.out aggregates_in pulls_answered && over_10 left.out pulls_answered && left_absorbed; } || break
done
tap_is "two levels: the first worker exits with 0" $first 0
tap_is "two levels: the second worker exits with 0" $second 0
tap_is "two levels: the aggregators exit with 0" $ended 0
tap_is "a child beyond the parent's --children reports it" $reported 0
tap_is "the root received more than 10 sums" "$(($(figure aggregates_in root.out) > 10))" 1
tap_is "the root sent fewer sums than it received" \
    "$(($(figure aggregates_out root.out) < $(figure aggregates_in root.out)))" 1
tap_is "each push at a child was absorbed or sent direct" \
    "$(($(figure pushes_absorbed left.out) + $(figure pushes_direct left.out)))" \
    "$(figure pushes_in left.out)"
tap_run "more than 80 % were absorbed" left_absorbed
tap_is "the child answered pulls" "$(($(figure pulls_answered left.out) > 10))" 1
tap_is "the root answered the child's pulls" "$(($(figure pulls_answered root.out) > 10))" 1

# Each is the other's parent, which the second one detects.
rm -f server.out
zero_at=127.0.0.1:$(tap_port)
one_at=127.0.0.1:$(tap_port)
"$WEFT_BIN" server --port 0 --workers 1 >server.out 2>server.err &
server=$!
tap_until tap_lines 1 '^shard .*:' server.out
"$WEFT_BIN" aggregate --listen "$zero_at" --children 2 --number 0 --parent "$one_at" \
    >zero.out 2>zero.err &
zero=$!
"$WEFT_BIN" aggregate --listen "$one_at" --children 2 --number 1 --parent "$zero_at" \
    >one.out 2>one.err &
one=$!
tap_until tap_lines 1 '^shard .*:' zero.out
tap_until tap_lines 1 '^shard .*:' one.out
tap_run "aggregators in a cycle: a worker exits with 0" "$WEFT_BIN" worker --workers 1 --rank 0 --epochs 4 \
    --servers "127.0.0.1:$(port_of server.out)" --via "$zero_at"
tap_run "an aggregator reports the cycle" tap_until grep -q 'form a cycle, or two of them have the same number' \
    zero.err one.err
kill "$zero" "$one" "$server"
wait "$zero" "$one" "$server"

# ---- Python --------------------------------------------------------------------------------------

if tap_has_python; then
    begin --metrics 127.0.0.1:0
    tap_until tap_lines 1 '^metrics: ' aggregate.out
    tap_python "$(port_of server.out)" \
        "$(port_of aggregate.out)" "$(sed -n 's/^metrics: //p' aggregate.out)" >python.out 2>&1 <<'END'
import re, sys, time, urllib.request, numpy, weft
server, via = ("127.0.0.1:" + port for port in sys.argv[1:3])

def absorbed():
    with urllib.request.urlopen(sys.argv[3]) as metrics:
        text = metrics.read().decode()
    return float(re.search(r"^weft_aggregator_pushes_absorbed_total{.*} (\S+)$", text, re.MULTILINE)[1])

with weft.connect(server, worker=0, workers=1, via=via) as ps:
    table = ps.table(0, dim=2, optimizer="sgd", learning_rate=1.0, consistency="asp", average="none")
    ids = numpy.arange(8, dtype=numpy.uint64)
    # Until the aggregator is connected, pushes are sent directly.
    first = 0
    while absorbed() == 0 and first < 2400:
        table.push(ids, numpy.ones((8, 2), numpy.float32))
        first += 1
        time.sleep(0.05)
    for _ in range(200):
        table.push(ids, numpy.ones((8, 2), numpy.float32))
    print(first + table.pull(ids).min(), first + table.pull(ids).max())
END
    tap_is "via in Python: each push counts once" "$(cat python.out)" "-200.0 -200.0"
    kill "$aggregator"
    wait "$aggregator"
    kill "$server"
    wait "$server"
    tap_is "its pushes were absorbed by the aggregator" "$(($(figure pushes_absorbed aggregate.out) > 100))" 1
    tap_is "its pulls were answered by the aggregator" "$(($(figure pulls_answered aggregate.out) > 0))" 1

    # A worker with a parked connection announces that it will not make progress for longer than its
    # lease.
    rm -f server.out aggregate.out
    WEFT_PEER_TIMEOUT_S=2 "$WEFT_BIN" server --port 0 --workers 1 --on-worker-death fail \
        --metrics 127.0.0.1:0 >server.out 2>server.err &
    server=$!
    tap_until tap_lines 1 '^shard .*:' server.out
    tap_until tap_lines 1 '^metrics: ' server.out
    "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 1 --json \
        --servers "127.0.0.1:$(port_of server.out)" >aggregate.out 2>aggregate.err &
    aggregator=$!
    tap_until tap_lines 1 '^shard .*:' aggregate.out
    WEFT_PEER_TIMEOUT_S=2 tap_python "$(port_of server.out)" "$(port_of aggregate.out)" \
        "$(sed -n 's/^metrics: //p' server.out)" >python.out 2>&1 <<'END'
import sys, time, urllib.request, numpy, weft
server, via = ("127.0.0.1:" + port for port in sys.argv[1:3])

def is_parked():
    with urllib.request.urlopen(sys.argv[3]) as metrics:
        return 'weft_workers_parked{shard="0"} 1' in metrics.read().decode()

with weft.connect(server, worker=0, workers=1, via=via) as ps:
    table = ps.table(0, dim=2, optimizer="sgd", learning_rate=1.0, consistency="bsp", average="none")
    random = numpy.random.default_rng(1)

    def step():
        ids = numpy.unique(random.integers(0, 4000, 50)).astype(numpy.uint64)
        table.pull(ids)
        table.push(ids, numpy.ones((len(ids), 2), numpy.float32))
        table.clock()

    end = time.monotonic() + 120
    while not is_parked() and time.monotonic() < end:
        for _ in range(10):
            step()
            time.sleep(0.02)
    print("parked" if is_parked() else "not parked")
    ps.flush()
    ps.idle()
    time.sleep(5)
    step()
    ps.flush()
    print("alive")
END
    tap_is "a parked worker is idle for longer than its lease" "$(tr '\n' ' ' <python.out)" "parked alive "

    # The worker ends while its server's host is busy: the server is notified nevertheless.
    WEFT_PEER_TIMEOUT_S=4 tap_python "$(port_of server.out)" "$(port_of aggregate.out)" \
        "$(sed -n 's/^metrics: //p' server.out)" "$server" >python.out 2>&1 <<'END'
import os, signal, sys, threading, time, urllib.request, numpy, weft
server, via = ("127.0.0.1:" + port for port in sys.argv[1:3])
pid = int(sys.argv[4])

def is_parked():
    with urllib.request.urlopen(sys.argv[3]) as metrics:
        return 'weft_workers_parked{shard="0"} 1' in metrics.read().decode()

with weft.connect(server, worker=0, workers=1, via=via) as ps:
    table = ps.table(0, dim=2, optimizer="sgd", learning_rate=1.0, consistency="bsp", average="none")
    random = numpy.random.default_rng(1)
    end = time.monotonic() + 120
    while not is_parked() and time.monotonic() < end:
        for _ in range(10):
            ids = numpy.unique(random.integers(0, 4000, 50)).astype(numpy.uint64)
            table.pull(ids)
            table.push(ids, numpy.ones((len(ids), 2), numpy.float32))
            table.clock()
            time.sleep(0.02)
    ps.flush()
    print("parked" if is_parked() else "not parked")
    os.kill(pid, signal.SIGSTOP)
    resume = threading.Timer(2, os.kill, (pid, signal.SIGCONT))
    resume.start()
resume.join()
while is_parked():
    time.sleep(0.05)
print("gone")
END
    tap_is "a parked worker closes its connection while its server is frozen" "$(tr '\n' ' ' <python.out)" "parked gone "
    tap_is "the resumed server does not report it as dead" "$(grep -c 'has died' server.err)" 0
    kill "$aggregator"
    wait "$aggregator"
    kill "$server"
    wait "$server"
    tap_is "until its end the server does not report it as dead" "$(grep -c 'has died' server.err)" 0
else
    tap_skip "via in Python" "no python3 with cffi and numpy, or not the release build"
fi

# ---- --flush-age-us beyond the workers' timeout
# -------------------------------------------------------------

"$WEFT_BIN" aggregate --listen 127.0.0.1:0 --servers 127.0.0.1:9 --flush-age-us 1000000 >old.out 2>old.err &
old=$!
tap_run "--flush-age-us as long as the workers' timeout: a warning" \
    tap_until grep -q 'may wait 1000 ms in sums.*[.] Lower --flush-age-us here or at a parent' old.err
kill "$old"
wait "$old"
rm -f old.out old.err
"$WEFT_BIN" aggregate --listen 127.0.0.1:0 --servers 127.0.0.1:9 --flush-age-us 999999 >old.out 2>old.err &
old=$!
tap_until tap_lines 1 '^shard .*:' old.out
kill "$old"
wait "$old"
tap_is "a shorter --flush-age-us: no warning" "$(grep -c 'Lower --flush-age-us' old.err)" 0

# ---- usage errors --------------------------------------------------------------------------------

"$WEFT_BIN" aggregate 2>usage.err
tap_is "no --servers: usage error" $? 2
tap_like "the error names --servers" "$(cat usage.err)" '--servers HOST:PORT.*weft server'
"$WEFT_BIN" aggregate --servers nowhere 2>usage.err
tap_is "an invalid --servers: usage error" $? 2
"$WEFT_BIN" aggregate --servers 127.0.0.1:9 --parent 127.0.0.1:8 2>usage.err
tap_is "--servers and --parent: usage error" $? 2
"$WEFT_BIN" aggregate --parent nowhere 2>usage.err
tap_is "an invalid --parent: usage error" $? 2
tap_like "the error says what it must be" "$(cat usage.err)" 'is not the HOST:PORT of another .weft aggregate'
"$WEFT_BIN" aggregate --listen 127.0.0.1:7850 --parent 127.0.0.1:7850 2>usage.err
tap_is "its own address as --parent: usage error" $? 2
tap_like "the error says so" "$(cat usage.err)" '--listen address of this process'
"$WEFT_BIN" worker --servers 127.0.0.1:9 --via nowhere >usage.out 2>&1
tap_is "an invalid --via: exit status 1" $? 1
tap_like "the error says what it must be" "$(cat usage.out)" 'must be the HOST:PORT that .weft aggregate'
tap_like "the help says what the command does" "$("$WEFT_BIN" aggregate --help)" 'aggregates pushes'
tap_done
