#!/bin/sh
# `weft aggregate`: two workers whose pushes go by it, one that is killed under them, and what it is
# told wrong.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB WEFT_VIA
tap_run "a job key" "$WEFT_BIN" keygen job.key
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY

port_of() {
    sed -n 's/^shard 0.*:\([0-9]*\)$/\1/p' "$1"
}

# begin: a server and an aggregator, $server and $aggregator.
begin() {
    rm -f server.out aggregate.out
    "$WEFT_BIN" server --port 0 --workers 2 >server.out 2>server.err &
    server=$!
    tap_until tap_lines 1 '^shard .*:' server.out
    "$WEFT_BIN" aggregate --listen 127.0.0.1:0 --workers 2 --json --flush-age-us 20000 \
        --servers "127.0.0.1:$(port_of server.out)" >aggregate.out 2>aggregate.err &
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

begin
work 0 1
first=$!
work 1 1
second=$!
wait "$first"
tap_is "the first worker ends well" $? 0
wait "$second"
tap_is "the second, too" $? 0
kill "$aggregator"
wait "$aggregator"
tap_is "the aggregator ends well" $? 0
kill "$server"
wait "$server"
tap_is "every push came by it" "$(figure pushes_absorbed aggregate.out)" "$(figure pushes_in aggregate.out)"
tap_is "and there were some" "$(($(figure pushes_absorbed aggregate.out) > 10))" 1
tap_is "fewer rows went out" \
    "$(($(figure rows_out aggregate.out) < $(figure rows_in aggregate.out)))" 1

begin
work 0 30
first=$!
work 1 30
second=$!
tap_until tap_lines 1 '"epoch":1' 0.out
kill -9 "$aggregator"
wait "$first"
tap_is "its aggregator is killed: the first worker ends well" $? 0
wait "$second"
tap_is "the second, too" $? 0
kill "$server"
wait "$server"

"$WEFT_BIN" aggregate 2>usage.err
tap_is "without servers: wrong usage" $? 2
tap_like "it says what is missing" "$(cat usage.err)" '--servers HOST:PORT.*weft server'
"$WEFT_BIN" aggregate --servers nowhere 2>usage.err
tap_is "servers that are none: wrong usage" $? 2
"$WEFT_BIN" worker --servers 127.0.0.1:9 --via nowhere >usage.out 2>&1
tap_is "--via that is no address fails" $? 1
tap_like "and says what it must be" "$(cat usage.out)" 'must be the HOST:PORT of .weft aggregate'
tap_like "help tells what it is for" "$("$WEFT_BIN" aggregate --help)" 'adds up pushes'
tap_done
