#!/bin/sh
# The command line: help, and usage errors, which have an error text and exit status 2.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
unset WEFT_DATA_DIR

# refused <text on stderr> <arguments...>: exit status 2, nothing on stdout.
refused() {
    sentence=$1
    shift
    status=0
    "$WEFT_BIN" "$@" >"$tap_tmp/out" 2>"$tap_tmp/err" || status=$?
    if [ "$status" = 2 ] && [ ! -s "$tap_tmp/out" ] && grep -q -e "$sentence" "$tap_tmp/err"; then
        tap_pass "rejects: weft $*"
    else
        tap_fail "rejects: weft $*" "exit $status, expected 2 and: $sentence
$(cat "$tap_tmp/out" "$tap_tmp/err")"
    fi
}

tap_like "--version prints the version" "$("$WEFT_BIN" --version)" '^weft [0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*$'
help=$("$WEFT_BIN" --help)
for verb in train run coordinator scheduler server worker keygen doctor perf trace lab sim; do
    tap_like "--help names $verb" "$help" "^  $verb "
done
for verb in train run coordinator scheduler server worker keygen doctor; do
    tap_run "$verb --help succeeds" "$WEFT_BIN" "$verb" --help
    text=$(cat "$tap_tmp/run.out")
    tap_like "$verb's help shows an example" "$text" "^  weft $verb "
    tap_is "$verb's help does not show internal options" "$(echo "$text" | grep -c control-fd)" 0
done
tap_like "the help has defaults" "$("$WEFT_BIN" train --help)" '--workers N .*(default: 4)'
tap_like "--help has precedence over the options after it" "$("$WEFT_BIN" train --help --nonsense)" '^usage:'

refused 'a command is missing'
refused 'did you mean train?' trian
refused 'unknown command "zzz"' zzz
refused 'did you mean --loss-bound?' train --loss-bond 0.1
refused 'did you mean --model?' train --modle lr
refused 'unknown option --zzz' train --zzz
refused '"now" is not an option' train now
refused '--epochs needs an argument' train --epochs
refused '--json takes no argument' train --json=yes

for bound in 1 1.5 -0.1 nan inf 0x1 10% ''; do
    refused '--loss-bound.*at least 0 and below 1' train --loss-bound "$bound"
done
refused '--inject-loss.*at least 0 and below 1' train --inject-loss 1
refused '--workers "0".*from 1 to' train --workers 0
refused '--workers "-1"' train --workers -1
refused '--workers "2x"' train --workers 2x
refused '--workers "99999999999999999999"' train --workers 99999999999999999999
refused '--servers "0"' train --servers 0
refused '--epochs "0"' train --epochs 0
refused '--batch "0"' train --batch 0
refused '--mode "ssp".*bsp, ssp:N (such as ssp:2) or asp' train --mode ssp
refused '--mode "ssp:-1"' train --mode ssp:-1
refused '--mode "BSP"' train --mode BSP
refused '--optimizer "adam".*adagrad or sgd' train --optimizer adam
refused '--average "median".*workers or contributors' train --average median
refused '--value-type "int4".*float32, bf16 or int8' train --value-type int4
refused '--pull-value-type "int8".*float32 or bf16' train --pull-value-type int8
refused '--model "dnn".*lr' train --model dnn
refused '--format "csv".*adult, adult3, libsvm, movielens, tsv, criteo or docword' train --format csv
refused '--lr "0".*above 0' train --lr 0
refused '--data ""' train --data ''
refused '--data is missing' train --format libsvm
refused 'no segments and no number of receivers' sim allreduce --box switch --segment-bytes 4096
refused 'no segments and no number of receivers' sim allreduce --box host --receivers 2
refused 'no segments and no number of receivers' sim allreduce --box switch --segment-bytes 129024 # the default
refused 'too many' train --servers 32 --shards-per-server 2
refused 'too few ports for 2 shards' train --port 65535

refused '--servers or --coordinator is missing' worker
refused 'must be HOST:PORT' worker --coordinator localhost
refused 'must be HOST:PORT' server --coordinator :1
refused '--lease-ms "99".*from 100' coordinator --lease-ms 99
refused 'the command is missing' run -n 2
refused 'the command is missing' run --
refused '--workers "0"' run -n 0 -- true
refused 'maximum is 32 shards' run -s 8 --shards-per-server 8 -- true
refused 'is not an option' run true -- true
export WEFT_ROLE=worker
refused 'WEFT_ROLE says that this process is a worker, but it is a server' server
unset WEFT_ROLE
export WEFT_RANK=x
refused 'WEFT_RANK is "x"' worker --servers 127.0.0.1:1
unset WEFT_RANK
# Workers use WEFT_METRICS without --metrics; servers ignore it.
export WEFT_METRICS=here
wanted='WEFT_METRICS is "here"; it must be PORT or HOST:PORT with a port from 0 to 65535'
refused "$wanted" worker --servers 127.0.0.1:1
refused "$wanted" train
refused "$wanted" train --lab none --metrics 0
refused "$wanted" run -- true
refused '--servers or --coordinator is missing' worker --metrics 0
refused '--data is missing' train --metrics 0 --format libsvm
refused '--key-file has no effect with --security none' server --security none --key-file x
WEFT_METRICS=
refused '--servers or --coordinator is missing' worker
unset WEFT_METRICS
export WEFT_WORKERS=65
refused '65 workers (from WEFT_WORKERS) are too many' worker --servers 127.0.0.1:1
refused '65 workers (from WEFT_WORKERS) are too many' coordinator
unset WEFT_WORKERS
refused 'must be HOST:PORT' worker --servers localhost
refused 'must be HOST:PORT' worker --servers 127.0.0.1:0
refused 'must be HOST:PORT' worker --servers 127.0.0.1:1,
refused '--rank 2 is not allowed' worker --servers 127.0.0.1:1 --workers 2 --rank 2
refused 'are not within --shards' server --shards 1 --shard-base 1
refused 'loopback.*--insecure-network' server --security none --host 192.0.2.1 --port 0
refused 'loopback.*--insecure-network' worker --security none --servers 192.0.2.1:7700
for verb in server worker train; do
    refused '--security "tls".*auth, seal or none' "$verb" --security tls
done
refused '--key-file has no effect with --security none' server --security none --key-file x
refused '--key-file has no effect with --security none' train --security none --key-file x
refused '--insecure-network requires --security none' server --insecure-network
refused '--port "65536"' doctor --port 65536

refused 'FILE is missing' keygen
refused 'FILE is missing' keygen --check
refused '"two" is not an option' keygen one two
refused 'is not an option' keygen ''
refused '--check takes no argument' keygen --check=file
refused 'a pattern is missing' perf
refused 'unknown pattern "steam"' perf steam
refused '--transport "tcp".*weft, udp-raw, tcp-raw or all' perf stream --transport tcp
refused '--security "tls".*none, auth, seal or all' perf stream --security tls
refused 'the raw programs have none' perf stream --transport tcp-raw --security seal
refused '--packet-bytes "255".*from 256 to 65000' perf stream --packet-bytes 255
refused '--packet-bytes "65001"' perf stream --packet-bytes 65001
refused '--bytes "3"' perf stream --bytes 3
refused '--bytes "1e9"' perf stream --bytes 1e9
refused '2500000 messages; at most 1000000' perf stream --bytes 10000000 --message-bytes 4
refused 'chunks of 128 bytes; at most 262144' perf stream --packet-bytes 256 --message-bytes 64000000
refused '--rounds "0"' perf stream --rounds 0
refused '--busy-poll-us "10001".*from 0 to 10000' worker --busy-poll-us 10001
refused '--keepalive-ms "86400001".*from 0 to 86400000' worker --keepalive-ms 86400001
refused '--idle-timeout-ms "-1"' server --idle-timeout-ms -1
refused '--cpus "0".*two CPUs' perf stream --cpus 0
refused '--cpus "0,0x".*two CPUs' perf stream --cpus 0,0x
refused '--cpus "0,-1".*two CPUs' perf stream --cpus 0,-1
refused '--cpus "0,9999".*two CPUs' perf stream --cpus 0,9999

WEFT_RECONNECT_S=soon
export WEFT_RECONNECT_S
refused 'WEFT_RECONNECT_S is "soon"; it must be a whole number' worker --servers 127.0.0.1:9
unset WEFT_RECONNECT_S
WEFT_REPLAY_BYTES=70k
export WEFT_REPLAY_BYTES
refused 'WEFT_REPLAY_BYTES is "70k"; it must be a whole number' train
unset WEFT_REPLAY_BYTES

for verb in up exec status down run; do
    tap_run "lab $verb --help succeeds" "$WEFT_BIN" lab "$verb" --help
    tap_like "lab $verb's help shows an example" "$(cat "$tap_tmp/run.out")" "^  weft lab $verb "
done
refused 'a command is missing' lab
refused 'unknown command "zzz"' lab zzz
refused "the lab's name is missing" lab up
refused '"a/b" is not a valid lab name' lab up a/b
refused 'whole number from 1 to 256' lab up x --hosts 0
refused 'a rate such as 1gbit' lab up x --rate 1gbps
refused 'a size such as 128kb' lab up x --buffer 5
refused 'not below --buffer' lab up x --buffer 64kb --ecn 64kb
refused '--ecn requires --rate' lab up x --rate none --ecn 64kb
refused 'HOST=RATE, such as' lab up x --uplink 1
refused 'host 9 does not exist; the last is 3' lab up x --uplink 9=1mbit
refused 'star or spine-leaf' lab up x --topology ring
refused 'require --topology spine-leaf' lab up x --spines 2
refused 'more than 256 hosts' lab up x --topology spine-leaf --leaves 64 --hosts 9
refused 'cannot read /nonexistent: No such file' lab up x --trace /nonexistent
printf '0 h1 1gbit\n1 h1 fast\n' >"$tap_tmp/rates"
refused 'rates:2: a line must be "SECONDS HOST RATE"' lab up x --trace "$tap_tmp/rates"
printf '1 h1 1gbit\n0 h1 1gbit\n' >"$tap_tmp/rates"
refused 'rates:2: its time is before' lab up x --trace "$tap_tmp/rates"
printf '0 h1 1gbit up\n' >"$tap_tmp/rates"
refused 'the link of h1 has no rate limit' lab up x --trace "$tap_tmp/rates" --uplink 1=none
refused 'the command is missing' lab run --hosts 2
refused 'host "9" does not exist' lab run --on 9 -- true
refused 'the command is missing' lab exec x 0 --
refused "the lab's name or the host is missing" lab exec x
refused 'the name of a lab' lab down
# shellcheck disable=SC2046
refused '129 targets; the maximum is 128' top --once $(seq 1 129)

tap_done
