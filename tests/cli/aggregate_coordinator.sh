#!/bin/sh
# `weft aggregate --coordinator`: workers discover aggregators through the coordinator, by rack or by
# rank, including one that starts late or restarts after a kill. Also usage errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB WEFT_VIA
tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY

# begin: a coordinator and a server of two shards, $coordinator, $server and $at.
begin() {
    rm -f ./*.out ./*.err
    "$WEFT_BIN" coordinator --port 0 --workers 2 --shards 2 --lease-ms 1000 >coordinator.out 2>&1 &
    coordinator=$!
    tap_until tap_lines 1 '^coordinator: ' coordinator.out
    at=$(sed -n 's/^coordinator: //p' coordinator.out)
    "$WEFT_BIN" server --coordinator "$at" --shards-per-server 2 --port 0 --aggregators 4 \
        >server.out 2>&1 &
    server=$!
}

# box <number> [options ...]: an aggregator in the background.
box() {
    number=$1
    shift
    "$WEFT_BIN" aggregate --coordinator "$at" --listen 127.0.0.1:0 --number "$number" --json \
        --flush-age-us 20000 "$@" >"box$number.out" 2>"box$number.err" &
}

# work <rank> <epochs> [options ...]: a worker in the background.
work() {
    rank=$1
    epochs=$2
    shift 2
    "$WEFT_BIN" worker --coordinator "$at" --rank "$rank" --via coordinator --epochs "$epochs" \
        --batch 512 "$@" >"$rank.out" 2>"$rank.err" &
}

end() {
    kill "$server" "$coordinator"
    wait "$server" "$coordinator"
}

# figure <name> <file>
figure() {
    sed -n "s/.*\"$1\":[[:space:]]*\([0-9]*\).*/\1/p" "$2"
}

# over <n> <name> <file>: true if this figure is above n
over() {
    [ "$(figure "$2" "$3")" -gt "$1" ]
}

# absorbs <file>: true if servers have committed pushes of the aggregator with this output.
absorbs() {
    python3 - "$(sed -n 's/^metrics: //p' "$1")" <<'END'
import re, sys, urllib.request

with urllib.request.urlopen(sys.argv[1]) as metrics:
    text = metrics.read().decode()
counts = re.findall(r"^weft_aggregator_pushes_absorbed_total{.*} (\S+)$", text, re.MULTILINE)
sys.exit(0 if sum(map(float, counts)) > 0 else 1)
END
}

# ---- by rack, by rank ----------------------------------------------------------------------------

# Workers push directly until the aggregator replies. On a busy machine a short job may end before; it is then
# repeated with more epochs. A job that fails is not repeated.
for epochs in 2 16 128; do
    begin
    box 0 --rack north
    zero=$!
    box 1 --rack south
    one=$!
    tap_until tap_lines 1 '^shard 1:' box0.out
    tap_until tap_lines 1 '^shard 1:' box1.out
    work 0 $epochs --rack south
    first=$!
    work 1 $epochs --rack south
    second=$!
    wait "$first"
    first=$?
    wait "$second"
    second=$?
    kill "$zero" "$one"
    wait "$zero" && wait "$one"
    ended=$?
    end
    [ "$first $second $ended" = "0 0 0" ] || break
    ! { over 20 pushes_absorbed box1.out && over 5 flushed_complete box1.out; } || break
done
tap_is "rack south for both workers: the first worker exits with 0" $first 0
tap_is "the second worker exits with 0" $second 0
tap_is "the aggregators exit with 0" $ended 0
tap_is "the aggregator of that rack has their pushes" "$(($(figure pushes_absorbed box1.out) > 20))" 1
tap_is "it flushed sums of both workers" "$(($(figure flushed_complete box1.out) > 5))" 1
tap_is "the aggregator of the other rack has none" "$(figure pushes_in box0.out)" 0

# The same for a user's program.
if tap_has_python; then
    begin
    box 0 --rack north
    zero=$!
    box 1 --rack south --metrics 127.0.0.1:0
    one=$!
    tap_until tap_lines 1 '^shard 1:' box0.out
    tap_until tap_lines 1 '^metrics: ' box1.out
    tap_python "$at" "$(sed -n 's/^metrics: //p' box1.out)" >python.out 2>&1 <<'END'
import re, sys, threading, time, urllib.request, numpy, weft
ids = numpy.arange(64, dtype=numpy.uint64)
ones = numpy.ones((64, 2), numpy.float32)
barrier = threading.Barrier(2)
pushes = [0, 0]

def absorbed():
    with urllib.request.urlopen(sys.argv[2]) as metrics:
        text = metrics.read().decode()
    return sum(float(count) for count in
               re.findall(r"^weft_aggregator_pushes_absorbed_total{.*} (\S+)$", text, re.MULTILINE))

def work(rank):
    with weft.connect(coordinator=sys.argv[1], via="coordinator", rack="south") as ps:
        table = ps.table(0, dim=2, optimizer="sgd", learning_rate=1.0, consistency="asp", average="none")
        # Until the connection to the aggregator is up, pushes are sent to the servers.
        while pushes[rank] < 1200 and (pushes[rank] < 20 or absorbed() == 0):
            table.push(ids, ones)
            pushes[rank] += 1
            time.sleep(0.02)
        barrier.wait()
        if rank == 0:
            rows = sum(pushes) + table.pull(ids)
            print(rows.min(), rows.max())
        barrier.wait()

workers = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
END
    tap_is "coordinator and rack in Python: each push counts once" "$(cat python.out)" "0.0 0.0"
    kill "$zero" "$one"
    wait "$zero" "$one"
    end
    tap_is "the aggregator of that rack has pushes" "$(($(figure pushes_absorbed box1.out) > 0))" 1
    tap_is "the aggregator of the other rack has none" "$(figure pushes_in box0.out)" 0
else
    tap_skip "coordinator and rack in Python" "no python3 with cffi and numpy, or not the release build"
fi

for epochs in 2 16 128; do
    begin
    box 0
    zero=$!
    box 2
    two=$!
    tap_until tap_lines 1 '^shard 1:' box0.out
    tap_until tap_lines 1 '^shard 1:' box2.out
    work 0 $epochs
    first=$!
    work 1 $epochs --rack nowhere
    second=$!
    wait "$first"
    first=$?
    wait "$second"
    second=$?
    kill "$zero" "$two"
    wait "$zero" && wait "$two"
    ended=$?
    end
    [ "$first $second $ended" = "0 0 0" ] || break
    ! { over 10 pushes_absorbed box0.out && over 10 pushes_absorbed box2.out; } || break
done
tap_is "no rack of an aggregator: the first worker exits with 0" $first 0
tap_is "the second worker exits with 0" $second 0
tap_is "the aggregators exit with 0" $ended 0
tap_is "one worker pushes through the first aggregator" "$(($(figure pushes_absorbed box0.out) > 10))" 1
tap_is "the other worker pushes through the second aggregator" "$(($(figure pushes_absorbed box2.out) > 10))" 1

# ---- an aggregator that starts late, is killed and restarts --------------------------------------

# more <count>: true if worker 0 has ended more than `count` epochs.
more() {
    [ "$(grep -c '"epoch"' 0.out)" -gt "$1" ]
}

begin
work 0 9000
first=$!
work 1 9000
second=$!
tap_until more 1
box 0
zero=$!
tap_run "an aggregator starts late" tap_until tap_lines 1 '^shard 1:' box0.out
tap_run "the coordinator reports its address" tap_until grep -q 'aggregator 0 is at' coordinator.out
tap_run "the workers continue" tap_until more "$(($(grep -c '"epoch"' 0.out) + 10))"
kill -9 "$zero"
wait "$zero" 2>/dev/null
tap_run "the aggregator is killed: the workers continue" tap_until more "$(($(grep -c '"epoch"' 0.out) + 10))"
rm -f box0.out
box 0 --metrics 127.0.0.1:0
zero=$!
tap_run "it restarts when its lease has expired" tap_until tap_lines 1 '^shard 1:' box0.out
# Workers request another aggregator after a second, and a server may still have the dead one's
# connection.
tap_run "it receives pushes again" tap_until absorbs box0.out
tap_run "the workers continue" tap_until more "$(($(grep -c '"epoch"' 0.out) + 10))"
kill -0 "$first" && kill -0 "$second"
tap_is "both workers still run" $? 0
kill "$zero"
wait "$zero"
tap_is "the restarted aggregator absorbed pushes" "$(($(figure pushes_absorbed box0.out) > 0))" 1
kill "$first" "$second"
wait "$first" "$second"
end

# ---- usage errors --------------------------------------------------------------------------------

begin
box 0
zero=$!
tap_until tap_lines 1 '^shard 1:' box0.out
"$WEFT_BIN" aggregate --coordinator "$at" --listen 127.0.0.1:0 --number 0 >twin.out 2>twin.err
tap_is "a second aggregator with the same number exits with 1" $? 1
tap_like "its error names the number" "$(cat twin.err)" 'aggregator 0 belongs to another process'
"$WEFT_BIN" keygen other.key >/dev/null
(
    unset WEFT_JOB_KEY
    "$WEFT_BIN" aggregate --coordinator "$at" --listen 127.0.0.1:0 --number 1 --key-file other.key \
        --start-timeout 2 >wrong.out 2>wrong.err
)
tap_is "an aggregator with another key exits with 1" $? 1
kill "$zero"
wait "$zero"
tap_is "the first one still runs, and exits with 0" $? 0
end
"$WEFT_BIN" worker --servers 127.0.0.1:9 --via coordinator >usage.out 2>&1
tap_is "--via coordinator without a coordinator: exit status 1" $? 1
tap_like "the error says so" "$(cat usage.out)" 'is coordinator, and this job has none'
"$WEFT_BIN" aggregate --coordinator nowhere 2>usage.err
tap_is "an invalid --coordinator: usage error" $? 2
for option in rack advertise; do
    "$WEFT_BIN" aggregate --servers 127.0.0.1:9 "--$option" north 2>usage.err
    tap_is "--$option without a coordinator: usage error" $? 2
    tap_like "--$option: the error names --coordinator" "$(cat usage.err)" '--coordinator, which assigns'
done
tap_done
