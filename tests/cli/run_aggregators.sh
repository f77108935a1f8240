#!/bin/sh
# `weft run --aggregators`: workers push through aggregators that the coordinator assigns; a killed
# aggregator is restarted, or its workers push to the servers. Also usage errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
TMPDIR=$tap_tmp/t
mkdir "$TMPDIR"
export TMPDIR
unset WEFT_ROLE WEFT_RANK WEFT_WORKERS WEFT_SHARDS WEFT_COORDINATOR WEFT_SERVERS WEFT_JOB_KEY WEFT_JOB
unset WEFT_RECONNECT_S WEFT_REPLAY_BYTES WEFT_VIA WEFT_SCHEDULER

awk 'BEGIN { for (i = 0; i < 1200; i++) print i % 2, 10 + i % 5 ":1", 20 + i % 3 ":1" }' >tiny

# A worker that trains until the file `over` exists, and ends with 0 if it ended by SIGTERM then, and not in another way.
cat >worker <<END
#!/bin/sh
errors=errors.\$WEFT_RANK
"$WEFT_BIN" worker --format libsvm --data "$PWD/tiny" --epochs 10000 --batch 4 2>"\$errors" &
until [ -e over ] || ! kill -0 \$! 2>/dev/null; do
    sleep 0.05
done
kill \$!
wait \$!
status=\$?
[ -e over ] || [ \$status -ne 0 ] || status=1
[ \$status -ne 1 ] || ! grep -q '^weft worker: interrupted$' "\$errors" || status=0
[ \$status -ne 143 ] || status=0 # before its handler of SIGTERM was set
cat "\$errors" >&2
exit \$status
END
chmod +x worker

# begin <file> <options>: starts a job of two workers in the background, $job
begin() {
    file=$1
    shift
    rm -f over
    "$WEFT_BIN" run -n 2 -s 2 --peer-timeout 60 --metrics 127.0.0.1:0 "$@" -- ./worker >"$file.out" 2>"$file.err" &
    job=$!
    tap_until grep -q '^weft run: metrics: ' "$file.err"
}
end() { # its exit status
    : >over
    wait "$job"
}

# trains_on <file>: true if worker 0 has ended more epochs than $epochs
trains_on() {
    tap_lines $((epochs + 1)) '^\[worker 0\] {"event":"epoch"' "$1.out"
}

# absorbed <file>: pushes committed in sums, over all running aggregators.
absorbed() {
    python3 - "$(sed -n 's/^weft run: metrics: //p' "$1")" <<'END'
import json, re, sys, urllib.request

def get(url):
    with urllib.request.urlopen(url, timeout=10) as page:
        return page.read().decode()

total = 0
for target in json.loads(get(sys.argv[1].replace("/metrics", "/targets"))):
    if target["labels"].get("role") == "aggregator":
        for address in target["targets"]:
            text = get(f"http://{address}/metrics")
            total += sum(map(float, re.findall(r"^weft_aggregator_pushes_absorbed_total{.*} (\S+)$", text,
                                               re.MULTILINE)))
print(int(total))
END
}
# has_absorbed <file>: true if at least one was committed.
has_absorbed() {
    [ "$(absorbed "$1" 2>/dev/null || echo 0)" -gt 0 ]
}
# pid <file> <n>: pid of the n-th process of aggregator 0.
pid() {
    sed -n 's/^weft run: aggregator 0: pid //p' "$1" | sed -n "$2p"
}
# started <file> <n>: true if aggregator 0 was started n times.
started() {
    [ "$(grep -c '^weft run: aggregator 0: pid' "$1")" -ge "$2" ]
}

begin again --aggregators 1 --restart 3 --aggregator-options "--flush-age-us 20000 --tables 1"
tap_at_exit 'kill $job 2>/dev/null; wait'
tap_run "pushes go through the aggregator" tap_until has_absorbed again.err
kill -9 "$(pid again.err 1)"
tap_run "a killed aggregator is restarted" tap_until started again.err 2
tap_like "weft run reports it" "$(cat again.err)" 'aggregator 0 was killed by signal 9.*; restart 1 of 3'
tap_run "pushes go through the restarted aggregator" tap_until has_absorbed again.err
end
tap_is "the job exits with 0" $? 0

begin once --aggregators 2 --aggregator-options "--flush-age-us 20000"
tap_run "pushes go through at least one of two aggregators" tap_until has_absorbed once.err
# targets <file>: ranks of the aggregators whose metrics can be scraped.
targets() {
    python3 -c 'import json, sys, urllib.request
page = urllib.request.urlopen(sys.argv[1].replace("/metrics", "/targets"), timeout=10).read()
labels = [target["labels"] for target in json.loads(page)]
print(*sorted(label["rank"] for label in labels if label["role"] == "aggregator"))' \
        "$(sed -n 's/^weft run: metrics: //p' "$1")"
}
targets_are() { [ "$(targets once.err)" = "$1" ]; }
tap_run "both are in /targets" tap_until targets_are "0 1"
kill -9 "$(pid once.err 1)"
tap_run "one is killed: weft run reports it" tap_until grep -q 'aggregator 0 was killed' once.err
tap_run "it is not in /targets" tap_until targets_are 1
epochs=$(grep -c '^\[worker 0\] {"event":"epoch"' once.out)
tap_run "the workers train on without it" tap_until trains_on once
end
tap_is "the job exits with 0" $? 0
tap_like "weft run reports that its workers push to the servers" "$(cat once.err)" \
    'aggregator 0 was killed by signal 9.*; its workers push to the servers'

# shellcheck disable=SC2016 # expanded by the child's shell
"$WEFT_BIN" run --aggregators 1 -- sh -c 'echo via $WEFT_VIA' >via.out 2>&1
tap_is "a command that does not use the aggregator succeeds" $? 0
tap_like "WEFT_VIA is set to coordinator" "$(cat via.out)" '^\[worker 0\] via coordinator$'
# shellcheck disable=SC2016
WEFT_VIA=127.0.0.1:9 "$WEFT_BIN" run --aggregators 1 -- sh -c 'echo via $WEFT_VIA' >via.out 2>&1
tap_like "WEFT_VIA of the user has precedence" "$(cat via.out)" '^\[worker 0\] via 127.0.0.1:9$'

# shellcheck disable=SC2016
"$WEFT_BIN" run --aggregators 2 -s 2 --scheduler on -- sh -c 'echo via $WEFT_VIA of $WEFT_SCHEDULER' >via.out 2>&1
tap_is "a command with aggregators and a scheduler succeeds" $? 0
at='127.0.0.1:[0-9]*'
tap_like "WEFT_VIA has all aggregators, WEFT_SCHEDULER the scheduler" "$(cat via.out)" \
    "^\[worker 0\] via $at,$at/$at,$at of $at\$"

# WEFT_SCHEDULER without --scheduler: workers and servers use the same one, or none.
# schedulers <options>: the scheduler of the command, by its environment, and of the servers, by their arguments.
schedulers() {
    # shellcheck disable=SC2016
    WEFT_SCHEDULER=127.0.0.1:9 "$WEFT_BIN" run "$@" -- sh -c 'echo worker "${WEFT_SCHEDULER-unset}"
        for child in $(cat /proc/$PPID/task/*/children); do
            tr "\0" "\n" <"/proc/$child/cmdline" | sed -n "s/^--scheduler=/server /p"
        done' 2>&1 | sed -n 's/^\[worker 0\] //p' | sort -u | paste -s -d ' '
}
tap_is "WEFT_SCHEDULER is used by servers and workers" "$(schedulers)" "server 127.0.0.1:9 worker 127.0.0.1:9"
tap_is "--scheduler has precedence over WEFT_SCHEDULER" "$(schedulers --scheduler 127.0.0.1:8)" \
    "server 127.0.0.1:8 worker 127.0.0.1:8"
tap_is "--scheduler off: neither uses one" "$(schedulers --scheduler off)" "worker unset"
tap_is "--server-options can set another scheduler for the servers" \
    "$(schedulers --server-options "--scheduler=127.0.0.1:8")" "server 127.0.0.1:8 worker 127.0.0.1:9"

# A server dies, and its replica at another address is promoted. The aggregator connects to it, long before its
# connection to the dead one times out.
"$WEFT_BIN" run -n 2 --peer-timeout 600 --metrics 127.0.0.1:0 --aggregators 1 --replicas 1 --div-max 0 \
    --on-server-death promote -- "$WEFT_BIN" worker --format libsvm --data "$PWD/tiny" --epochs 10000 \
    --batch 4 >moved.out 2>moved.err &
job=$!
tap_run "pushes go through an aggregator of a job with replicas" tap_until has_absorbed moved.err
tap_until grep -q '^weft run: replica 0: ready' moved.err
kill -9 "$(sed -n 's/^weft run: server 0: pid //p' moved.err)"
tap_run "a replica is promoted" tap_until grep -q 'which was its replica' moved.err
has_more() { [ "$(absorbed moved.err 2>/dev/null || echo 0)" -gt $(($1 + 200)) ]; }
before=$(absorbed moved.err)
tap_run "the promoted replica receives sums long before the peer timeout of 600 s" tap_until has_more "$before"
kill "$job"
wait "$job"

# wrong <name> <pattern> <options>
wrong() {
    what=$1 pattern=$2
    shift 2
    "$WEFT_BIN" run "$@" -- true >wrong.out 2>&1
    tap_is "$what: usage error" $? 2
    tap_like "$what: the error says why" "$(cat wrong.out)" "$pattern"
}
wrong "too many aggregators" 'aggregators' --aggregators 65
wrong "--aggregator-options without --aggregators" 'aggregator-options requires --aggregators' --aggregator-options x
wrong "too many aggregators for a scheduler" 'at most 32' --aggregators 33 --scheduler on
wrong "an invalid --scheduler" 'must be the HOST:PORT' --scheduler nowhere
WEFT_SCHEDULER=on
export WEFT_SCHEDULER
wrong "an invalid WEFT_SCHEDULER" 'WEFT_SCHEDULER is "on"' --aggregators 1
unset WEFT_SCHEDULER
wrong "--scheduler-options without a scheduler" 'scheduler-options requires --scheduler on' --scheduler-options x
wrong "--scheduler and --server-options" 'leave it out' --scheduler on --server-options "--scheduler 127.0.0.1:1"
wrong "--aggregators and --server-options" 'leave it out' --aggregators 1 --server-options "--aggregators 3"
"$WEFT_BIN" run --aggregators 1 --aggregator-options "--flush-age-us none" -- true >wrong.out 2>&1
tap_is "an option that aggregators reject: exit status 1" $? 1
tap_like "the error names the process" "$(cat wrong.out)" 'aggregator 0 ended with exit status 2'
tap_done
