#!/bin/sh
# The parameter server in programs: the examples in C and C++ with `weft server`,
# started in any order, with a server that is killed, and with another key.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

if [ "$WEFT_BUILD_NAME" != release ]; then
    # A sanitized library also needs its runtime in the program; other tests cover that build.
    tap_skip "the examples" "not in the $WEFT_BUILD_NAME build"
    tap_done
fi

cd "$tap_tmp" || exit 1
LD_LIBRARY_PATH=$WEFT_BUILD_ROOT
export LD_LIBRARY_PATH
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY DMLC_ROLE DMLC_RANK DMLC_NUM_WORKER
unset WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB RANK WORLD_SIZE SLURM_PROCID OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK
examples=$WEFT_SOURCE_ROOT/examples

build() { # build <name> <compiler and flags> <source>
    # shellcheck disable=SC2086 # $2 is split into flags
    tap_run "$1 compiles without warnings" $2 -Wall -Wextra -Wpedantic -Werror -I"$WEFT_SOURCE_ROOT/include" "$3" \
        -L"$WEFT_BUILD_ROOT" -lweft -lm -o "$1"
}
build ps_train "${CC:-cc} -std=c11" "$examples/ps_train.c"
tap_is "examples/ps_train.c has fewer than 60 lines" "$(($(wc -l <"$examples/ps_train.c") < 60))" 1

tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key
tap_run "keygen of another key succeeds" "$WEFT_BIN" keygen other.key
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY

# serve <shards> <arguments...>: start a server; sets $server to its pid and WEFT_SERVERS to the
# list of its shards.
serve() {
    shards=$1
    shift
    rm -f server.out
    "$WEFT_BIN" server --shards-per-server "$shards" "$@" >server.out 2>server.err &
    server=$!
    tap_until tap_lines "$shards" '^shard .*:' server.out
    WEFT_SERVERS=$(sed -n 's/^shard .*: //p' server.out | paste -sd, -)
    export WEFT_SERVERS
}

# both <name> <program>: run two workers; both must succeed. Output in 0.out and 1.out.
both() {
    for rank in 0 1; do
        WEFT_WORKERS=2 WEFT_RANK=$rank "$2" >$rank.out 2>$rank.err &
        eval "pid$rank=$!"
    done
    status=0
    # shellcheck disable=SC2154 # set by eval
    wait "$pid0" || status=$?
    # shellcheck disable=SC2154
    wait "$pid1" || status=$?
    tap_is "$1: both workers exit with 0, without errors" "$status $(cat 0.err 1.err)" "0 "
}

accuracy() { # of both workers: 1 if at least 0.8
    cat 0.out 1.out | awk '/^accuracy/ { n += $2 >= 0.8 } END { print n + 0 }'
}

serve 2 --workers 2 --port 0
both "ps_train" ./ps_train
tap_is "both reach an accuracy of 0.8" "$(accuracy)" 2
both "ps_train again, with the same table" ./ps_train
tap_is "both reach an accuracy of 0.8 again" "$(accuracy)" 2

WEFT_WORKERS=2 WEFT_RANK=2 ./ps_train 2>run.err
tap_like "a rank beyond the workers is reported" "$(cat run.err)" 'rank 2 (from WEFT_RANK) does not exist in a job of 2 workers'
WEFT_PEER_TIMEOUT_S=5 WEFT_JOB_KEY=$(cat other.key) ./ps_train 2>run.err
tap_like "another key is reported" "$(cat run.err)" "127.0.0.1:[0-9]* refused the connection: .*reports another job key"
env -u WEFT_SERVERS ./ps_train 2>run.err
tap_like "missing WEFT_SERVERS is reported" "$(cat run.err)" 'WEFT_SERVERS'
env WEFT_COORDINATOR=nowhere ./ps_train 2>run.err
tap_like "an invalid WEFT_COORDINATOR is reported" "$(cat run.err)" 'WEFT_COORDINATOR is "nowhere"; it must be HOST:PORT'
env -u WEFT_JOB_KEY ./ps_train 2>run.err
tap_like "a missing key is reported" "$(cat run.err)" 'weft keygen'
kill "$server"
wait "$server" 2>/dev/null

# A job with a coordinator: no process is configured with a rank, the number of workers, or server addresses.
"$WEFT_BIN" coordinator --port 0 --workers 2 --shards 2 --until-done >coordinator.out 2>&1 &
coordinator=$!
tap_until grep -q '^coordinator: ' coordinator.out
WEFT_COORDINATOR=$(sed -n 's/^coordinator: //p' coordinator.out)
"$WEFT_BIN" server --coordinator "$WEFT_COORDINATOR" --port 0 --shards-per-server 2 >server.out 2>&1 &
server=$!
for rank in 0 1; do
    env -u WEFT_SERVERS WEFT_COORDINATOR="$WEFT_COORDINATOR" ./ps_train >$rank.out 2>$rank.err &
    eval "pid$rank=$!"
done
status=0
for pid in "$pid0" "$pid1" "$coordinator" "$server"; do
    wait "$pid" || status=$?
done
tap_is "with a coordinator: workers, coordinator and server exit with 0" "$status $(cat 0.err 1.err)" "0 "
tap_is "with a coordinator: both reach an accuracy of 0.8" "$(accuracy)" 2

# The worker first, then the server at the port to which the worker connects.
port=$(tap_port)
WEFT_SERVERS=127.0.0.1:$port ./ps_train >0.out 2>0.err &
worker=$!
sleep 1
"$WEFT_BIN" server --workers 1 --port "$port" >server.out 2>server.err &
server=$!
status=0
wait "$worker" || status=$?
tap_is "a worker waits for its server" "$status $(cat 0.err)" "0 "
kill "$server"
wait "$server" 2>/dev/null

# Killed while a worker waits in a pull: the pull fails within the timeouts.
serve 1 --workers 2 --port 0 --metrics 0
WEFT_PEER_TIMEOUT_S=10 WEFT_WORKERS=2 WEFT_RANK=0 ./ps_train >0.out 2>0.err &
worker=$!
# The worker has pushed, so it pulls next.
pushed() {
    python3 -c 'import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())' \
        "$(sed -n 's/^metrics: //p' server.out)" | grep -q '^weft_requests_total{.*kind="push".*} [1-9]'
}
tap_until pushed
kill -9 "$server"
wait "$server" 2>/dev/null
status=0
wait "$worker" || status=$?
tap_is "a worker exits with 1 if its server is killed" "$status" 1
tap_like "the worker's error names the server" "$(cat 0.err)" 'the server of shard 0 at 127.0.0.1:[0-9]* is gone: '

if command -v g++ >/dev/null; then
    build kv_worker "g++ -std=c++11 -Wconversion" "$examples/kv_worker.cc"
    build kv_test "g++ -std=c++17" "$WEFT_SOURCE_ROOT/tests/cli/kv_test.cc"
    serve 2 --workers 2 --port 0
    both "kv_worker" ./kv_worker
    tap_is "kv_worker: both print 1000 of 1000 sums" "$(cat 0.out 1.out | grep -c '^1000 of 1000 sums')" 2
    # Both workers have left: the sums are those of 50 pushes of 7 and of 8, plus the pushes made
    # here.
    tap_run "kv_test, the calls of ps-lite, succeeds" ./kv_test 15
    DMLC_ROLE=server ./kv_worker >0.out 2>0.err
    tap_like "DMLC_ROLE=server is reported" "$(cat 0.err)" 'start `weft server` in place'
    DMLC_RANK=x ./kv_worker >0.out 2>0.err
    tap_like "an invalid DMLC_RANK is reported" "$(cat 0.err)" 'DMLC_RANK is "x"; it must be a whole number'
    env WEFT_RANK=1 DMLC_RANK=0 DMLC_NUM_WORKER=2 ./kv_worker >0.out 2>0.err
    tap_is "weft's variables have precedence" "$? $(cat 0.err)" "0 "
    kill "$server"
    wait "$server" 2>/dev/null
    cat >handler.cc <<'END'
#include <weft/ps_lite.h>
struct Mine {};
int main() { ps::KVServer<float> server(0); server.set_request_handle(Mine()); }
END
    tap_run_fails "a request handler does not compile" 1 g++ -std=c++17 -fsyntax-only \
        -I"$WEFT_SOURCE_ROOT/include" handler.cc
    tap_like "the error names weft/ps.h" "$(cat run.out)" 'see <weft/ps.h>'
else
    tap_skip "weft/ps_lite.h" "no g++"
fi

tap_done
