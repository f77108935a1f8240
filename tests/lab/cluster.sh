#!/bin/sh
# The life cycle of a lab: it starts, runs commands, ends, and leaves nothing behind, whichever process is
# killed.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
lab_or_skip

weft=$WEFT_BIN
a=test-a-$$
b=test-b-$$
run=
# the duration of this test's sleep processes, by which they are found in the process list
mark=9753$$
cleanup() {
    "$weft" lab down "$a" 2>/dev/null
    "$weft" lab down "$b" 2>/dev/null
    [ -z "$run" ] || kill -KILL "$run" 2>/dev/null
}
tap_at_exit cleanup

machine() { # what a lab could leave behind in the network of the machine itself
    ip -o link | sed 's/ mtu .*//'
    ip route show table all
    nft list ruleset
    tc qdisc show
}
sleepers() { ps -e -o args= | grep -c "^sleep $mark\$"; }
no_sleeper() { [ "$(sleepers)" = 0 ]; }
one_sleeper() { [ "$(sleepers)" = 1 ]; }
two_sleepers() { [ "$(sleepers)" = 2 ]; }
gone() { # true if gone, or a zombie not yet reaped by process 1
    ! grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$1/status" 2>/dev/null
}
entries() { find /run/weft/lab -name "*$1*" 2>/dev/null | wc -l; }
in_use() { lsns -n -t net -o NS | grep -c "$1"; } # number of processes in that network namespace
network_of() { readlink "/proc/$1/ns/net" | tr -dc 0-9; }

before=$(machine)

# ---- up, exec, status, down --------------------------------------------------------------------
tap_run "up" "$weft" lab up "$a" --hosts 3 --rate 100mbit --uplink 1=50mbit --loss 0.01
tap_like "up prints the topology and the addresses" "$(cat "$tap_tmp/run.out")" \
    "lab $a is up: star, hosts 0 .. 2 at 10.77.0.1 .. 10.77.0.3"
tap_is "status reports the rate" "$(lab_fact "$a" rate_bps)" 100000000
tap_is "status reports the link with other rates" \
    "$(lab_fact "$a" 'links_that_differ[0] | "\(.host) \(.up_bps) \(.down_bps)"')" \
    "1 50000000 100000000"
tap_like "the base RTT is between 1 us and 1 ms" "$(lab_fact "$a" base_rtt_ns)" '^[1-9][0-9]\{3,5\}$'
tap_is "the machine's network is unchanged" "$(machine)" "$before"
tap_run_fails "up fails if the name is in use" 1 "$weft" lab up "$a" --hosts 2
tap_like "the error names lab down" "$(cat "$tap_tmp/run.out")" "a lab named $a exists: .weft lab down $a"

cd "$tap_tmp" || exit 1
tap_is "exec: host name, directory and interfaces are right" \
    "$("$weft" lab exec "$a" h2 -- sh -c 'hostname; pwd; ls /sys/class/net' | tr '\n' ' ')" \
    "h2 $tap_tmp eth0 lo "
tap_is "exec: host names resolve" "$("$weft" lab exec "$a" 0 -- getent hosts h1 | cut -d ' ' -f 1)" 10.77.0.2
tap_is "exec: commands run in routers, too" "$("$weft" lab exec "$a" switch -- hostname)" switch
tap_run_fails "exec: passes on the command's exit status" 3 "$weft" lab exec "$a" 0 -- sh -c 'exit 3'
# shellcheck disable=SC2016
tap_run_fails "exec: passes on a death by a signal" 137 "$weft" lab exec "$a" 0 -- sh -c 'kill -9 $$'
tap_run_fails "exec: 127 if there is no such command" 127 "$weft" lab exec "$a" 0 -- no-such-command
tap_run_fails "exec: fails if there is no such host" 2 "$weft" lab exec "$a" 3 -- true
tap_run_fails "exec: fails if there is no such lab" 1 "$weft" lab exec "$a-x" 0 -- true

"$weft" lab exec "$a" 0 -- sh -c 'trap "exit 9" USR1; echo ready; while :; do sleep 0.05; done' \
    >"$tap_tmp/ready" &
exec=$!
lab_until 120 grep -q ready "$tap_tmp/ready"
kill -USR1 "$exec"
status=0
wait "$exec" || status=$?
tap_is "exec: signals are passed on" "$status" 9

"$weft" lab exec "$a" 0 -- sleep "$mark" &
exec=$!
lab_until 120 one_sleeper
kill -KILL "$exec"
wait "$exec" 2>/dev/null
tap_run "exec: the command ends if weft is killed" lab_until 120 no_sleeper

# ---- a lab keeps no descriptor of its creator
tap_run "a reader of up's output reaches the end of file" \
    timeout 120 sh -c '"$0" lab up "$1" --hosts 2 7>&1 2>&1 | cat' "$weft" "$b"
tap_run "down removes that lab" "$weft" lab down "$b"

# ---- two at a time -----------------------------------------------------------------------------
tap_run "a second lab beside it" "$weft" lab up "$b" --hosts 2 --rate none
for lab in "$a" "$b"; do
    "$weft" lab exec "$lab" 1 -- "$WEFT_BLAST" recv 1000 >"$tap_tmp/recv.$lab" &
    lab_until 120 grep -q ready "$tap_tmp/recv.$lab"
done
for row in "$b 200" "$a 1"; do # the marks end the receiver
    "$weft" lab exec "${row% *}" 0 -- "$WEFT_BLAST" send 10.77.0.2 "${row#* }" marks
    lab_until 120 grep -q packets "$tap_tmp/recv.${row% *}"
done
tap_like "packets in the second lab arrive there" "$(cat "$tap_tmp/recv.$b")" '^packets 200 '
tap_like "at most 1 packet arrived in the first lab" "$(cat "$tap_tmp/recv.$a")" '^packets [01] '

"$weft" lab exec "$b" 0 -- setsid -f sleep "$mark" # a daemon in the lab
lab_until 120 one_sleeper
network=$(network_of "$(pgrep -f "^sleep $mark")")
holder=$(lab_fact "$b" holder)
tap_run "down" "$weft" lab down "$b"
tap_run "down ends a daemon in the lab" no_sleeper
tap_run "down ends the holder" gone "$holder"
tap_is "down removes the network namespaces" "$(in_use "$network")" 0
tap_is "down removes the registry entry" "$(entries "$b")" 0
tap_run_fails "down fails the second time" 1 "$weft" lab down "$b"
tap_run "the first lab still runs" "$weft" lab exec "$a" 1 -- true

# ---- a lab that ends with a process ------------------------------------------------------------
sleep "$mark" &
owner=$!
tap_run "up --until-pid succeeds" "$weft" lab up "$b" --hosts 2 --until-pid "$owner"
tap_run "it is up" "$weft" lab exec "$b" 1 -- true
holder=$(lab_fact "$b" holder)
kill -KILL "$owner"
tap_run "the holder ends when that process is killed" lab_until 120 gone "$holder"
tap_run_fails "then the lab does not exist" 1 "$weft" lab exec "$b" 1 -- true
wait "$owner" 2>/dev/null

# The steps of this trace are always due: tc takes longer than they do.
sleep "$mark" &
owner=$!
printf '0 h0 100mbit\n0.0001 h0 50mbit\n0.0002 repeat\n' >"$tap_tmp/fast.trace"
tap_run "up --until-pid with a fast --trace succeeds" "$weft" lab up "$b" --hosts 2 \
    --trace "$tap_tmp/fast.trace" --until-pid "$owner"
holder=$(lab_fact "$b" holder)
kill -KILL "$owner"
tap_run "the holder ends when that process is killed" lab_until 120 gone "$holder"
tap_run_fails "then the lab does not exist" 1 "$weft" lab exec "$b" 1 -- true
wait "$owner" 2>/dev/null
tap_run_fails "up fails if the process does not exist" 1 "$weft" lab up "$b" --hosts 2 --until-pid "$owner"
tap_like "the error names the process" "$(cat "$tap_tmp/run.out")" "until-pid $owner: No such process"
tap_is "no entry is left" "$(entries "$b")" 0

# ---- the holder is killed ----------------------------------------------------------------------
"$weft" lab exec "$a" 0 -- sleep "$mark" &
exec=$!
lab_until 120 one_sleeper
network=$(network_of "$(pgrep -f "^sleep $mark")")
holder=$(lab_fact "$a" holder)
kill -KILL "$holder"
status=0
wait "$exec" || status=$?
tap_is "kill -9 of the holder ends the commands in the lab" "$status" 137
tap_run "no sleep process is left" lab_until 120 no_sleeper
tap_run "the holder is gone" lab_until 120 gone "$holder"
tap_is "the network namespaces are gone" "$(in_use "$network")" 0
tap_run_fails "status fails for that lab" 1 "$weft" lab status "$a"
tap_is "the leftover entry was removed" "$(entries "$a")" 0
tap_is "the machine's network is unchanged" "$(machine)" "$before"

# ---- run ---------------------------------------------------------------------------------------
# shellcheck disable=SC2016
tap_is "run: WEFT_LAB names the lab" \
    "$("$weft" lab run --hosts 2 -- sh -c '"$0" lab exec "$WEFT_LAB" 1 -- hostname' "$weft")" h1
tap_is "run --on 1 runs the command on host 1" "$("$weft" lab run --hosts 2 --on 1 -- hostname)" h1
tap_run_fails "run: passes on the command's exit status" 7 "$weft" lab run --hosts 2 -- sh -c 'exit 7'
tap_run "run: exits 0 if the command leaves a process" \
    "$weft" lab run --hosts 2 -- setsid -f sleep "$mark"
tap_run "run: that process is ended before run exits" no_sleeper

# Starts `weft lab run` in a process group of its own, with a sleeper on the machine (a daemon of the
# command's) and one in the lab, and waits for both. Sets run (weft), guard and holder.
start_run() {
    # A shell without job control starts background commands with SIGINT ignored; an interactive one does not.
    # shellcheck disable=SC2016
    env --default-signal=INT setsid "$weft" lab run --hosts 2 -- sh -c \
        'setsid -f sleep "$1"; "$0" lab exec "$WEFT_LAB" 1 -- sleep "$1"' "$weft" "$mark" &
    run=$!
    lab_until 120 two_sleepers
    guard=$(pgrep -P "$run")
    holder=$(lab_fact "run-$run" holder)
}
# run_ended <name> <exit status wanted>
run_ended() {
    status=0
    wait "$run" 2>/dev/null || status=$?
    tap_is "$1: exit status" "$status" "$2"
    tap_run "$1: no process is left" lab_until 120 no_sleeper
    tap_run "$1: the holder is gone" lab_until 120 gone "$holder"
    "$weft" lab status >/dev/null
    tap_is "$1: no entry is left" "$(entries "run-$run")" 0
    run=
}
start_run
kill -INT "-$run"
run_ended "run, Ctrl-C" 130
start_run
kill -TERM "$run"
run_ended "run, SIGTERM" 143
start_run
kill -KILL "$run"
run_ended "run, kill -9 of weft" 137
start_run
kill -KILL "$guard"
run_ended "run, kill -9 of its guard" 137
start_run
kill -KILL "$holder"
run_ended "run, kill -9 of the holder" 137

# ---- a failed set-up -----------------------------------------------------------------------------
setsid "$weft" lab run --hosts 200 -- true 2>"$tap_tmp/err" &
run=$!
lab_until 120 test -e "/run/weft/lab/run-$run"
holder=$(jq .holder "/run/weft/lab/run-$run")
kill -INT "-$run"
run_ended "run, Ctrl-C during the set-up" 130
"$weft" lab up "$a" --hosts 200 >"$tap_tmp/out" 2>&1 &
run=$!
lab_until 120 test -e "/run/weft/lab/$a"
holder=$(jq .holder "/run/weft/lab/$a")
kill -KILL "$run"
wait "$run" 2>/dev/null
run=
tap_run "kill -9 of up during the set-up: the holder ends" lab_until 120 gone "$holder"
tap_run_fails "kill -9 of up during the set-up: there is no lab" 1 "$weft" lab status "$a"
tap_is "kill -9 of up during the set-up: no entry is left" "$(entries "$a")" 0

printf '{"name":"%s","pid_namespace":"pid:[1]","holder":1,"holder_start":5}' "$a" >"/run/weft/lab/$a"
tap_run_fails "up fails if a lab of another PID namespace has the name" 1 "$weft" lab up "$a" --hosts 2
tap_like "the error names the file to remove" "$(cat "$tap_tmp/run.out")" "remove /run/weft/lab/$a if no process"
rm "/run/weft/lab/$a"

mkdir "$tap_tmp/bin"
printf '#!/bin/sh\necho "I am not the tc you want" >&2\nexit 1\n' >"$tap_tmp/bin/tc"
chmod +x "$tap_tmp/bin/tc"
tap_run_fails "up fails if tc fails" 1 env PATH="$tap_tmp/bin:$PATH" "$weft" lab up "$a" --hosts 2
tap_like "the error contains tc's message" "$(cat "$tap_tmp/run.out")" '^weft lab up: tc failed: I am not the tc'
tap_is "and no entry is left" "$(entries "$a")" 0
tap_is "the machine's network is unchanged" "$(machine)" "$before"

if [ -x "$(command -v setpriv)" ] && setpriv --reuid 65534 --clear-groups -- "$weft" --version \
    >/dev/null 2>&1; then
    tap_run_fails "up fails without root" 1 setpriv --reuid 65534 --clear-groups -- "$weft" lab up "$a"
    tap_like "the error names the capabilities" "$(cat "$tap_tmp/run.out")" \
        'needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN: sudo weft lab'
else
    tap_skip "up fails without root" "no setpriv, or the program is in a folder that only root may read"
fi
tap_done
