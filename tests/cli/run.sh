#!/bin/sh
# Starting a job: `weft run` starts, supervises and ends it; `weft coordinator` registers members in any
# order, survives kill -9, and rejects processes of other jobs.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
TMPDIR=$tap_tmp/t
mkdir "$TMPDIR"
export TMPDIR
unset WEFT_ROLE WEFT_RANK WEFT_WORKERS WEFT_SHARDS WEFT_COORDINATOR WEFT_SERVERS WEFT_JOB_KEY WEFT_JOB
unset WEFT_RECONNECT_S WEFT_REPLAY_BYTES
weft=$WEFT_BIN
# Number of simultaneous starts of 48 workers; for 50: WEFT_STARTS=50 meson test -C build cli_run
starts=${WEFT_STARTS:-5}
many=48
[ "$WEFT_BUILD_NAME" = release ] || { starts=1 many=12; }
# Meson sets MALLOC_PERTURB_. An endpoint reserves memory for all its peers and touches only what it
# needs; filling all of it, two gigabytes for 48 workers, would dominate a start.
unset MALLOC_PERTURB_

# Enough data for each of 48 workers.
awk 'BEGIN { for (i = 0; i < 120; i++) print i % 2, 10 + i % 5 ":1", 20 + i % 3 ":1" }' >tiny
worker="worker --format libsvm --data $PWD/tiny --epochs 1 --batch 4"

# all_gone <pid...>: true if none of them runs (a zombie of this test counts as gone)
all_gone() {
    for pid in "$@"; do
        ! tap_alive "$pid" || return 1
    done
}
pids() { # pids <file>: pids of the processes that `weft run` started
    sed -n 's/^weft run: .*: pid \([0-9]*\)$/\1/p' "$1"
}

tap_run_fails "an invalid WEFT_PEER_TIMEOUT_S is rejected" 1 env WEFT_PEER_TIMEOUT_S=ten "$weft" run -- true
tap_like "the error has its value" "$(cat run.out)" 'WEFT_PEER_TIMEOUT_S is "ten"; it must be a whole number from 1 to'
# shellcheck disable=SC2016 # expanded by the child's shell
tap_run "weft run --peer-timeout succeeds" "$weft" run --peer-timeout 33 -- sh -c 'echo patience $WEFT_PEER_TIMEOUT_S'
tap_like "its workers have the timeout in their environment" "$(cat run.out)" '^\[worker 0\] patience 33$'

# Settings of workers for a disconnected server, by precedence: options, the user's environment,
# weft run's defaults. A worker receives WEFT_RECONNECT_S and WEFT_REPLAY_BYTES. settings <name>
# <expected> <variables and options...>
settings() {
    what=$1
    expected=$2
    shift 2
    variables=
    while [ "${1#*=}" != "${1-}" ] && [ "${1#-}" = "${1-}" ]; do
        variables="$variables $1"
        shift
    done
    # shellcheck disable=SC2016,SC2086 # the child's shell expands the one, this shell splits the other
    tap_run "$what" env $variables "$weft" run --peer-timeout 60 "$@" --server-options \
        "--checkpoint $PWD/settings" -- sh -c 'echo settings $WEFT_RECONNECT_S, $WEFT_REPLAY_BYTES'
    tap_like "$what: the worker has them in its environment" "$(cat run.out)" "^\[worker 0\] settings $expected\$"
}
settings "defaults of weft run" "60, 268435456" --restart 1
settings "from the environment" "7, 70000" WEFT_RECONNECT_S=7 WEFT_REPLAY_BYTES=70000 --restart 1
settings "0 from the environment" "0, 0" WEFT_RECONNECT_S=0 WEFT_REPLAY_BYTES=0 --restart 1
settings "an option instead of the environment" "60, 80000" WEFT_RECONNECT_S= WEFT_REPLAY_BYTES=70000 \
    --restart 1 --replay-bytes 80000
settings "--durability none instead of the environment" "60, 0" WEFT_REPLAY_BYTES=70000 --restart 1 \
    --durability none
tap_run_fails "an invalid WEFT_REPLAY_BYTES is rejected" 1 env WEFT_REPLAY_BYTES=70k "$weft" run -- true
tap_like "the error has its value" "$(cat run.out)" 'WEFT_REPLAY_BYTES is "70k"; it must be a .*number from 0 to'

# ---- weft run ----------------------------------------------------------------------------------

# shellcheck disable=SC2016 # expanded by the child's shell
tap_run "a command is run once for each worker" "$weft" run -n 3 -s 2 --job j-1 -- sh -c \
    'echo $WEFT_ROLE $WEFT_RANK of $WEFT_WORKERS, $WEFT_SHARDS shards, restart $WEFT_RESTART, $WEFT_JOB
    test ${#WEFT_JOB_KEY} = 64 && test ${#WEFT_MEMBER} = 16 && echo $WEFT_SERVERS $WEFT_COORDINATOR'
cp run.out all
tap_like "its output has its environment" "$(cat all)" \
    '^\[worker 2\] worker 2 of 3, 2 shards, restart 0, j-1$'
tap_is "each process has the addresses of servers and coordinator" "$(grep -c \
    '^\[worker [012]\] 127.0.0.1:[0-9]*,127.0.0.1:[0-9]* 127.0.0.1:[0-9]*$' all)" 3
tap_run "weft worker is configured by the environment" \
    "$weft" run -n 2 -s 2 --shards-per-server 2 -- "$weft" $worker
tap_is "both workers have trained" "$(grep -c '^\[worker [01]\] {"event":"done"' run.out)" 2
# A program of the C API: it reads servers, rank, number of workers and key from the environment.
if [ "$WEFT_BUILD_NAME" = release ] && ${CC:-cc} -I"$WEFT_SOURCE_ROOT/include" -o ps_train \
    "$WEFT_SOURCE_ROOT/examples/ps_train.c" -L"$WEFT_BUILD_ROOT" -lweft -lm; then
    tap_run "a program of the C API succeeds" env LD_LIBRARY_PATH="$WEFT_BUILD_ROOT" \
        "$weft" run -n 2 -s 2 -- ./ps_train
    tap_is "each of its workers has trained" "$(grep -c '^\[worker [01]\] accuracy' run.out)" 2
else
    tap_skip "a program of the C API succeeds" "not in the $WEFT_BUILD_NAME build"
fi
tap_run_fails "an invalid --server-options fails" 1 "$weft" run --server-options "--tables 3  --dim-max 0" -- true
tap_like "the options are passed to the server" "$(cat run.out)" '^\[server 0\] weft server: --dim-max "0" is not allowed'
tap_run "a job over TCP succeeds" "$weft" run -n 2 --transport tcp -- "$weft" $worker --transport tcp
tap_run_fails "a worker that fails ends the run" 1 "$weft" run -n 2 -- sh -c \
    'test "$WEFT_RANK" = 0 || exit 7; sleep 100'
tap_like "the error names the worker" "$(cat run.out)" \
    '^weft run: worker 1 ended with exit status 7; stopped all processes$'
tap_run "no process is left" all_gone $(pids run.out)
tap_run_fails "a command that does not exist fails" 1 "$weft" run -- ./no-such-command
tap_like "the error names it" "$(cat run.out)" 'cannot run ./no-such-command: No such file'

cat >flaky <<'END'
#!/bin/sh
echo "rank $WEFT_RANK restart $WEFT_RESTART"
[ "$WEFT_RESTART" -ge 2 ] || kill -9 $$
END
chmod +x flaky
tap_run "processes that die are restarted" "$weft" run -n 2 --restart 2 -- ./flaky
tap_is "with the same rank" "$(grep -c '^\[worker 1\] rank 1 restart 2$' run.out)" 1
tap_like "weft run reports the restart" "$(cat run.out)" \
    '^weft run: worker 0 was killed by signal 9 (Killed); restart 2 of 2$'
tap_run_fails "they are not restarted more often than --restart" 1 "$weft" run -n 1 --restart 1 -- ./flaky
tap_like "the error names --restart" "$(cat run.out)" 'once more than --restart allows'

# background <name> <command...>: its output in <name>.out, its pid in $last
background() {
    name=$1
    shift
    : >"$name.out" # here: port_of must not find a line of the last process of this name
    "$@" >>"$name.out" 2>&1 &
    last=$!
}
# shellcheck disable=SC2016
background term "$weft" run -n 2 -s 2 -- sh -c 'sleep 1000 & echo child $!; wait'
tap_run "a job runs" tap_until sh -c 'test "$(grep -c child term.out)" = 2'
kill -TERM $last
wait $last
tap_is "SIGTERM: exit status 1" $? 1
tap_like "SIGTERM: the error names the signal" "$(cat term.out)" 'interrupted by signal 15'
tap_run "SIGTERM: no process is left, no grandchild either" tap_until all_gone $(pids term.out) \
    $(sed -n 's/.*child //p' term.out)
# shellcheck disable=SC2016
background killed "$weft" run -n 2 -s 2 -- sh -c 'sleep 1000 & echo child $!; wait'
tap_run "another job runs" tap_until sh -c 'test "$(grep -c child killed.out)" = 2'
kill -KILL $last
wait $last 2>/dev/null
tap_run "kill -9 of weft run: no process is left, no grandchild either" tap_until all_gone \
    $(pids killed.out) $(sed -n 's/.*child //p' killed.out)
tap_run "kill -9 of weft run: its directory is removed" tap_until sh -c '[ -z "$(ls -A "$TMPDIR")" ]'

# Workers that end normally no longer need the server; a job with checkpoints needs its last
# checkpoint.
cat >kills_server <<'END'
#!/bin/sh
kill -9 "$(sed -n 's/^weft run: server 0: pid //p' "$1")"
sleep "$2"
END
chmod +x kills_server
# in_time <regular expression> <name> <command...>: as background, until it ends; sets $status. Where its workers end
# later than the second that weft run waits for them, its output has this line, and it is repeated.
in_time() {
    late=$1
    shift
    for _ in 1 2 3 4 5; do
        rm -rf "$1.ckpt"
        background "$@"
        status=0
        wait $last || status=$?
        grep -q "$late" "$1.out" || break
    done
}
gives_up='^weft run: server [01] was killed by signal 9 (Killed); stopped all processes$'
in_time "$gives_up" spent "$weft" run -n 2 -- sh -c './kills_server spent.out 0.1; exit 0'
tap_is "a server that dies when the last worker ends: exit status 0" $status 0
tap_like "weft run reports it" "$(cat spent.out)" \
    '^weft run: server 0 was killed by signal 9 (Killed)\(, at the end of the last worker.s work\| when\)'
background needed "$weft" run -n 1 -- ./kills_server needed.out 1000
wait $last
tap_is "a server that dies while a worker runs: exit status 1" $? 1
tap_like "the error names the server" "$(cat needed.out)" \
    '^weft run: server 0 was killed by signal 9 (Killed); stopped all processes$'
background cause "$weft" run -n 1 -- sh -c './kills_server cause.out 0.5; exit 3'
wait $last
tap_like "the death of the server is reported as the cause, not the later failure of the worker" "$(cat cause.out)" \
    '^weft run: server 0 was killed by signal 9 (Killed); stopped all processes$'
background kept "$weft" run -n 1 --server-options "--checkpoint $PWD/kept" -- sh -c \
    './kills_server kept.out 0.2; exit 0'
wait $last
tap_is "with checkpoints a server that dies when the last worker ends: exit status 1" $? 1
# shellcheck disable=SC2016
in_time "$gives_up" both "$weft" run -n 1 -s 2 -- sh -c \
    'kill -9 $(sed -n "s/^weft run: server [01]: pid //p" both.out); sleep 0.1; exit 0'
tap_is "several servers that die when the last worker ends: exit status 0" $status 0
# After six deaths the pause before its restart is 1.6 s.
cat >kills_again <<'END'
#!/bin/sh
before=
for _ in 1 2 3 4 5 6; do
    while pid=$(sed -n 's/^weft run: server 0: pid //p' "$1" | tail -n 1) && [ "$pid" = "$before" ]; do
        sleep 0.01
    done
    kill -9 "$pid"
    before=$pid
done
END
chmod +x kills_again
in_time '^weft run: all 1 workers have finished$' due "$weft" run -n 1 --restart 9 \
    --server-options "--checkpoint $PWD/due.ckpt" -- sh -c './kills_again due.out; sleep 0.1; exit 0'
tap_is "a server that waits for its restart when the last worker ends: exit status 1" $status 1
tap_like "the error says that a checkpoint may be missing" "$(cat due.out)" \
    '^weft run: all workers have finished, but server 0 .* checkpoint may be missing; stopped'

# A server hangs on SIGTERM in the write of its trace to an almost full pipe. It might be writing a
# checkpoint, so it has two minutes; a second signal ends the wait.
mkfifo stuck
exec 9<>stuck
dd if=/dev/zero bs=64940 count=1 >&9 2>/dev/null
background hangs "$weft" run -n 1 --server-options "--trace $PWD/stuck --checkpoint $PWD/hangs" -- true
hangs=$last
tap_run "a job runs whose server will hang at its end" tap_until sh -c 'grep -q "worker 0: pid" hangs.out'
tap_until all_gone $(sed -n 's/^weft run: worker 0: pid //p' hangs.out)
interrupted() { # the second signal must not be merged with the first one
    kill -INT $hangs 2>/dev/null
    sleep 0.6
    grep -q 'signal 2 (Interrupt) again; killing the servers' hangs.out
}
tap_run "a second Ctrl-C kills the server" tap_until interrupted
wait $hangs
tap_is "weft run exits with 1" $? 1
tap_run "no process is left" all_gone $(pids hangs.out)
exec 9>&-

# Nobody reads the output: the job runs, and its deaths are handled; then the output is read.
mkfifo unread
exec 9<>unread
fill() {
    dd if=/dev/zero of=unread bs=4096 count=1024 oflag=nonblock 2>/dev/null
}
fill
cat >twice <<'END'
#!/bin/sh
echo "line $1"
[ -e died ] && touch again && exit 0
touch died
kill -9 $$
END
chmod +x twice
"$weft" run -n 1 --restart 1 -- ./twice kept >&9 2>&1 9>&- &
unread=$!
tap_run "a worker is restarted although nobody reads the output" tap_until test -e again
cat unread >unread.out 9>&- &
reader=$!
tap_until test -s unread.out
exec 9>&-
wait $unread
tap_is "when the output is read, the run ends with 0" $? 0
wait $reader
tap_is "no line is missing" "$(tr -d '\000' <unread.out | grep -c '^\[worker 0\] line kept$')" 2
tap_like "the last message is the last line" "$(tr -d '\000' <unread.out | tail -n 1)" \
    '^weft run: all 1 workers have finished$'
rm -f again died
exec 9<>unread
fill
"$weft" run -n 1 -- sh -c 'touch again; yes' >&9 2>&1 9>&- &
unread=$!
tap_run "another job runs whose output nobody reads" tap_until test -e again
kill -TERM $unread
tap_run "SIGTERM ends it" tap_until all_gone $unread
wait $unread
tap_is "its exit status is 1" $? 1
exec 9>&-
if [ -w /dev/full ]; then
    tap_run_fails "output that cannot be written: exit status 1" 1 sh -c '"$0" run -n 1 -- echo x >/dev/full' "$weft"
    tap_like "the error has the reason" "$(cat run.out)" \
        '^weft run: cannot write all output of the processes: No space left on device$'
else
    tap_skip "output that cannot be written: exit status 1" "no /dev/full"
fi

# Ctrl-C also ends the program that reads the output, such as tee.
mkfifo piped
# shellcheck disable=SC2086
"$weft" run -n 1 --server-options "--checkpoint $PWD/last" -- "$weft" ${worker% --epochs*} --batch 4 --mode asp \
    --epochs 10000 >piped 2>&1 &
piped=$!
sed '/"epoch"/q' <piped >piped.out
kill -INT $piped
wait $piped
tap_is "Ctrl-C after the end of the output's reader: exit status 1" $? 1
tap_run "the server has written its last checkpoint" sh -c 'ls last/*.safetensors'

# nohup ignores SIGHUP.
# shellcheck disable=SC2016 # expanded by the worker
tap_run "a run that was started by nohup survives a SIGHUP" sh -c 'trap "" HUP; exec "$0" run -n 1 -- sh -c "$1"' \
    "$weft" 'kill -HUP $PPID'
# shellcheck disable=SC2016
tap_run_fails "another one ends" 1 "$weft" run -n 1 -- sh -c 'kill -HUP $PPID; sleep 1000'
tap_like "the message has the signal" "$(cat run.out)" '^weft run: interrupted by signal 1 (Hangup)'

# A signal that arrives while the workers of a failed run end. Both run before the first one fails.
cat >both_end <<'END'
#!/bin/sh
if [ "$WEFT_RANK" = 1 ]; then
    trap 'kill -INT $PPID; exit 0' TERM
    touch trapped
    while :; do sleep 0.01; done
fi
until [ -e trapped ]; do sleep 0.01; done
exit 7
END
chmod +x both_end
tap_run_fails "a signal while workers are stopped: exit status 1" 1 "$weft" run -n 2 -- ./both_end
tap_like "the signal is reported" "$(cat run.out)" 'weft run: interrupted by signal 2 (Interrupt)'

# The coordinator is killed while workers wait for a file; workers that start later still join.
cat >late <<'END'
#!/bin/sh
while [ ! -f go ]; do sleep 0.05; done
exec "$@"
END
chmod +x late
background away "$weft" run -n 3 -s 1 --restart 1 -- ./late "$weft" $worker
tap_run "a job with workers that start late runs" tap_until grep -q 'worker 2: pid' away.out
coordinator=$(sed -n 's/^weft run: coordinator 0: pid //p' away.out)
kill -KILL "$coordinator"
tap_run "its coordinator is killed and restarted" tap_until sh -c \
    'test "$(grep -c "coordinator 0: pid" away.out)" = 2'
touch go
wait $last
tap_is "all workers finish" $? 0
tap_is "no worker was restarted" "$(grep -c 'worker.*restart [1-9]' away.out)" 0
rm go

i=0
failed=0
while [ $i -lt "$starts" ]; do
    # shellcheck disable=SC2086
    if ! "$weft" run -n $many -s 2 -- "$weft" $worker >start.out 2>&1; then
        failed=$((failed + 1))
        grep -v event start.out | tail -n 20 >&2
    fi
    i=$((i + 1))
done
tap_is "$starts times $many workers start at the same time" $failed 0

# ---- weft coordinator ----------------------------------------------------------------------------

"$weft" keygen job.key >/dev/null
"$weft" keygen other.key >/dev/null
key="--key-file job.key"
port_of() { # port_of <file>: waits for a line NAME: HOST:PORT, and prints the port
    tap_until has_port "$1"
    sed -n 's/^[a-z0-9 ]*: 127[^:]*:\([0-9][0-9]*\)$/\1/p' "$1" | head -n 1
}
has_port() {
    grep -q '^[a-z0-9 ]*: 127[^:]*:[0-9][0-9]*$' "$1"
}

background alone "$weft" coordinator $key --port 0
port_of alone.out >/dev/null
kill $last
wait $last
tap_is "a coordinator without members exits with 0 at SIGTERM" $? 0
# A blocked signal would be read from the descriptor even if it is ignored.
background survivor sh -c 'trap "" HUP; exec "$@"' sh "$weft" coordinator $key --port 0
port_of survivor.out >/dev/null
tap_like "under nohup a coordinator does not block SIGHUP" "$(grep SigBlk "/proc/$last/status")" '[02468ace]$'
kill -HUP $last
kill $last
wait $last
port=$(tap_port)

# Any order: workers, server, coordinator.
# shellcheck disable=SC2086
{
    background w0 "$weft" $worker $key --coordinator "127.0.0.1:$port"
    w0=$last
    background w1 "$weft" $worker $key --coordinator "localhost:$port"
    w1=$last
    background sv "$weft" server $key --coordinator "127.0.0.1:$port" --port 0
    sv=$last
    sleep 0.3
    background sc "$weft" coordinator $key --port "$port" --workers 2 --shards 1 --until-done
}
sc=$last
for pid in $w0 $w1 $sv $sc; do
    wait "$pid"
    tap_is "started in any order: a process exits with 0" $? 0
done
tap_like "the coordinator reports that all shards are registered" "$(cat sc.out)" 'all shards are registered'

# torchrun's variables: rank and size, and the coordinator at MASTER_ADDR.
background tsc "$weft" coordinator $key --port "$port" --shards 1 --until-done
# shellcheck disable=SC2086
{
    background tsv "$weft" server $key --coordinator "127.0.0.1:$port" --port 0
    for r in 0 1; do
        background t$r env RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r MASTER_ADDR=localhost \
            MASTER_PORT="$port" "$weft" $worker $key
    done
}
wait $last
tap_is "a worker with torchrun's variables succeeds" $? 0
tap_like "it prints rank, size and coordinator" "$(cat t1.out)" \
    'launched as worker 1 (torchrun), 2 workers (torchrun), coordinator localhost:'
wait

# Processes of other jobs.
background sc "$weft" coordinator $key --port "$port" --workers 2 --shards 2 --lease-ms 10000 \
    --journal members
sc=$last
port_of sc.out >/dev/null
background sv "$weft" server $key --coordinator "127.0.0.1:$port" --port 0 --shard-base 0
sv=$last
first=$(port_of sv.out)
common="$key --coordinator 127.0.0.1:$port --start-timeout 120"
# shellcheck disable=SC2086
{
    tap_run_fails "a worker with another number of workers is rejected" 1 "$weft" $worker $common --workers 3
    tap_like "the error has both numbers" "$(cat run.out)" 'the job has 2 workers, not 3'
    tap_run_fails "a server with another number of shards is rejected" 1 "$weft" server $common --shards 3 --port 0
    tap_like "the error has both numbers" "$(cat run.out)" 'the job has 2 shards, not 3'
    tap_run_fails "a server of another job is rejected" 1 env WEFT_JOB=other "$weft" server $common --port 0
    tap_like "the error has both names" "$(cat run.out)" 'named "", not "other"'
    tap_run_fails "a worker of another job is rejected" 1 env WEFT_JOB=other "$weft" $worker $common
    tap_like "the error has both names" "$(cat run.out)" 'named "", not "other"'
    tap_run_fails "a server's address as --coordinator is rejected" 1 "$weft" server $key --port 0 \
        --coordinator "127.0.0.1:$first"
    tap_like "the error says that it is a server" "$(cat run.out)" \
        "the process at 127.0.0.1:$first is a .weft server. and not a coordinator; name the address"
    tap_patient "another key: the error names the key" 1 'no answer from the coordinator.* key' "$weft" \
        $worker --key-file other.key --coordinator "127.0.0.1:$port" --start-timeout
    tap_run_fails "a rank beyond the number of workers is rejected" 1 "$weft" $worker $common --rank 2
    tap_like "the error has both numbers" "$(cat run.out)" 'rank 2 does not exist in a job of 2 wo'
    tap_patient "a worker fails if shards are missing, and says so" 1 \
        'does not have all shards yet' "$weft" $worker $common --start-timeout
    tap_run_fails "a shard that another server has is rejected" 1 "$weft" server $key --port 0 --shard-base 0 \
        --coordinator "127.0.0.1:$port"
    tap_like "the error has that server's address" "$(cat run.out)" \
        "shard 0 belongs to another process, at 127.0.0.1 port $first, that is alive"
}
# Only missing heartbeats reveal a process that hangs.
kill -STOP $sv
# shellcheck disable=SC2086
background hung "$weft" server $key --coordinator "127.0.0.1:$port" --port 0 --shard-base 0
hung=$last
tap_run "a frozen server's lease expires, and another server gets its shard" \
    tap_until grep -q '^shard 0 of 2' hung.out
kill -CONT $sv
wait $sv
tap_is "the frozen server exits with 1 when it resumes" $? 1
tap_like "its error says that it was replaced" "$(cat sv.out)" 'replaced this process: another process has taken'
kill -KILL $hung
wait $hung 2>/dev/null
# shellcheck disable=SC2086
background sv2 "$weft" server $key --coordinator "127.0.0.1:$port" --port 0 --shard-base 0
sv2=$last
tap_run "a killed server's lease expires, and another server gets its shard" \
    tap_until grep -q '^shard 0 of 2' sv2.out

# kill -9 of the coordinator: the journal restores the members, and both reconnect.
kill -KILL $sc
wait $sc 2>/dev/null
printf 'torn' >>members
background sc2 "$weft" coordinator $key --port "$port" --journal members --until-done
sc2=$last
port_of sc2.out >/dev/null
tap_like "a restarted coordinator reads the members from its journal" "$(cat sc2.out)" \
    '^weft coordinator: [12] members from members; 4 bytes of an incomplete record were cut off$'
tap_run_fails "a second coordinator with the same journal is rejected" 1 "$weft" coordinator $key --port 0 \
    --journal members
tap_like "the error says so" "$(cat run.out)" 'members is in use by another coordinator'
# shellcheck disable=SC2086
{
    background sv3 "$weft" server $key --coordinator "127.0.0.1:$port" --port 0
    sv3=$last
    background w0 "$weft" $worker $key --coordinator "127.0.0.1:$port"
    w0=$last
    background w1 "$weft" $worker $key --coordinator "127.0.0.1:$port"
    w1=$last
}
for pid in $w0 $w1 $sv2 $sv3 $sc2; do
    wait "$pid"
    tap_is "the restored job ends: a process exits with 0" $? 0
done
cp members late
truncate -s -1 late # without the last record, that a server has left
background late "$weft" coordinator $key --port 0 --journal late
port_of late.out >/dev/null
tap_like "a member that has not left is named in a warning" "$(cat late.out)" \
    'late is the journal of a job whose 2 workers have all finished, with 1 members that have not left'
kill $last
wait $last
tap_run_fails "the journal of a job that has ended is refused with --until-done" 1 "$weft" coordinator $key \
    --port 0 --journal members --until-done
tap_like "the error says what to do" "$(cat run.out)" \
    'members is the journal of a job whose 2 workers have all finished; .* name a new file'
background ended "$weft" coordinator $key --port 0 --journal members
port_of ended.out >/dev/null
tap_like "without --until-done it is accepted with a warning" "$(cat ended.out)" '2 workers have all finished'
kill $last
wait $last
cp members whole
printf '\377' | dd of=members bs=1 seek=40 conv=notrunc 2>/dev/null
tap_run_fails "a damaged journal is rejected" 1 "$weft" coordinator $key --port 0 --journal members
tap_like "the error has the offset" "$(cat run.out)" 'members is damaged at byte 16'
echo 'something else altogether' >members
tap_run_fails "a file that is not a journal is rejected" 1 "$weft" coordinator $key --port 0 --journal members
tap_like "it is not overwritten" "$(cat members run.out)" '^something else'
tap_run_fails "the journal of a job with other options is rejected" 1 "$weft" coordinator $key --port 0 --journal whole \
    --workers 9
tap_like "the error says so" "$(cat run.out)" 'whole does not fit this job'
# A journal with half a megabyte of joins and leaves that are no longer needed.
if python3 -c '' 2>/dev/null; then
    python3 "$WEFT_SOURCE_ROOT/tests/cli/members_make.py" long 1500000
    for time in first second; do
        # shellcheck disable=SC2086
        background long-$time "$weft" coordinator $key --port 0 --journal long
        port_of long-$time.out >/dev/null
        kill -KILL $last
        wait $last 2>/dev/null
        tap_like "a long journal is read: $time time" "$(cat long-$time.out)" \
            '^weft coordinator: 1 members from long$'
        tap_is "it is compacted to two records: $time time" "$(wc -c <long | tr -d ' ')" 240
    done
else
    tap_skip "a long journal is read" "no python3"
fi

# A server that is also the coordinator.
# shellcheck disable=SC2086
{
    background both "$weft" server $key --coordinate 0 --port 0 --workers 1 --shards 1
    both=$last
    tap_until grep -q '^shard 0' both.out
    tap_run "a worker of a server with --coordinate succeeds" "$weft" $worker $key \
        --coordinator "127.0.0.1:$(sed -n 's/^coordinator: .*:\([0-9]*\)$/\1/p' both.out)"
}
kill $both
wait $both
tap_is "the server exits with 0" $? 0

tap_done
