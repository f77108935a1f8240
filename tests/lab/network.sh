#!/bin/sh
# Check that a lab's network has the requested rates, buffers, loss, routes and rate traces.
#
# These tests measure real queues; tests/lab/judge.sh describes how results on a busy machine are
# handled.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
# shellcheck source=tests/lab/judge.sh
. "$WEFT_SOURCE_ROOT/tests/lab/judge.sh"
lab_or_skip

weft=$WEFT_BIN
lab=test-n-$$
tap_at_exit '"$weft" lab down "$lab" 2>/dev/null'

# up <options...>
up() {
    "$weft" lab down "$lab" 2>/dev/null
    tap_run "up $*" "$weft" lab up "$lab" "$@"
}
# blast <from> <to> <packets>: sets packets (number received) and mbit (receive rate).
blast() {
    : >"$tap_tmp/recv" # otherwise the "ready" of the previous run would be mistaken for this run's
    "$weft" lab exec "$lab" "$2" -- "$WEFT_BLAST" recv "$3" >"$tap_tmp/recv" &
    blast_recv=$!
    lab_until 120 grep -q ready "$tap_tmp/recv"
    "$weft" lab exec "$lab" "$1" -- "$WEFT_BLAST" send "10.77.0.$(($2 + 1))" "$3" marks
    wait "$blast_recv"
    packets=$(awk '$1 == "packets" { print $2 + $4 }' "$tap_tmp/recv")
    mbit=$(awk '$1 == "packets" { print $8 }' "$tap_tmp/recv")
}
# within <seen> <least> <most>
within() {
    awk -v x="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(x >= a && x <= b) }'
}
# between <name> <seen> <least> <most>
between() {
    if within "$2" "$3" "$4"; then
        tap_pass "$1 ($2)"
    else
        tap_fail "$1" "seen: $2
expected: $3 .. $4"
    fi
}
# rate <name> <from> <to> <mbit> <packets>
rate() {
    judge "$1: within 5 % of $4 Mbit/s" rate_once "$2" "$3" "$4" "$5"
}
rate_once() {
    blast "$1" "$2" "$4"
    seen="$mbit Mbit/s"
    within "$mbit" "$(awk "BEGIN { print $3 * 0.95 }")" "$(awk "BEGIN { print $3 * 1.03 }")"
}

# ---- host settings -------------------------------------------------------------------------------
bucket() { # HTB burst of the switch port to h1, in bytes
    "$weft" lab exec "$lab" switch -- tc class show dev h1 | sed -n 's/.* burst \([0-9]*\)b .*/\1/p'
}
up --hosts 2 --rate 400mbit
if [ "$(cat /sys/module/sch_htb/parameters/htb_hysteresis 2>/dev/null || echo 0)" = 0 ]; then
    tap_is "status reports that HTB has no hysteresis" "$(lab_fact "$lab" htb_hysteresis)" false
    between "the HTB burst is 200 us" "$(bucket)" 9900 10100
else
    tap_is "status reports that HTB has hysteresis" "$(lab_fact "$lab" htb_hysteresis)" true
    between "with hysteresis the HTB burst is 100 us" "$(bucket)" 4900 5100
fi

# Simulate a host whose module options set htb_hysteresis and that loads HTB with the first qdisc
# after boot: in a mount namespace, which lasts for one command, a wrapper of tc creates the
# parameter file.
mkdir "$tap_tmp/bin"
cat >"$tap_tmp/bin/tc" <<END
#!/bin/sh
mkdir -p /sys/module/sch_htb/parameters
echo 1 >/sys/module/sch_htb/parameters/htb_hysteresis
exec $(PATH=$PATH:/usr/sbin:/sbin command -v tc) "\$@"
END
chmod +x "$tap_tmp/bin/tc"
cat >"$tap_tmp/booted" <<'END'
#!/bin/sh
mount -t tmpfs none /sys/module/sch_htb || exit 77
PATH=$1:$PATH
shift
exec "$@"
END
chmod +x "$tap_tmp/booted"
"$weft" lab down "$lab"
if unshare --mount "$tap_tmp/booted" "$tap_tmp/bin" true 2>"$tap_tmp/err"; then
    tap_run "up succeeds as the first lab after boot" unshare --mount "$tap_tmp/booted" "$tap_tmp/bin" \
        "$weft" lab up "$lab" --hosts 2 --rate 400mbit
    tap_is "htb_hysteresis set by module options is detected" "$(lab_fact "$lab" htb_hysteresis)" true
    between "its HTB burst is 100 us" "$(bucket)" 4900 5100
else
    tap_skip "up succeeds as the first lab after boot" "cannot mount over /sys/module/sch_htb: $(head -n 1 "$tap_tmp/err")"
fi

# ---- rates ---------------------------------------------------------------------------------------
up --hosts 3 --rate 100mbit --uplink 1=30mbit --downlink 2=20mbit --buffer 64kb
rate "h0 to h1" 0 1 100 2000
rate "h1 to h0, limited by the uplink" 1 0 30 600
rate "h0 to h2, limited by the downlink" 0 2 20 600
up --hosts 2 --rate 150mbit --buffer 8mb # large enough for all packets, even if a busy host stalls
rate "h0 to h1" 0 1 150 3000
blast 1 0 5000
tap_is "without --loss no packet is lost" "$packets" 5000

# ---- buffers: a burst of 200 packets into a slow port --------------------------------------------
# Expected: the buffer size in frames, plus two frames of HTB burst, plus the frames forwarded while
# the burst was sent (1.2 ms a frame).
burst() { # <frames>
    blast 0 1 200
    seen="$packets packets"
    within "$packets" "$(($1 + 1))" "$(($1 + 6))"
}
for frames in 20 60; do
    up --hosts 2 --rate 10mbit --uplink 0=none --buffer "$((frames * 1514))"
    judge "a buffer of $frames frames passes 1 to 6 frames more than its size" burst $frames
done

# ---- loss: the tolerance is five standard deviations ---------------------------------------------
up --hosts 2 --rate 400mbit --buffer 2mb --loss 0.05
for way in "0 1" "1 0"; do
    from=${way% *}
    to=${way#* }
    "$WEFT_RUNS" "$(lab_netns "$lab" "$from")" "$(lab_netns "$lab" "$to")" "10.77.0.$((to + 1))" 20000 \
        >"$tap_tmp/runs"
    between "--loss 0.05 loses 5 % of 20000 packets, hosts $way" "$(awk '{ print 20000 * $4 / $2 }' "$tap_tmp/runs")" \
        846 1154
done

# ---- segmentation offload is off; TCP congestion control can be selected -------------------------
up --hosts 2 --rate 200mbit
listening() { "$weft" lab exec "$lab" 1 -- ss -Hltn sport = :7701 | grep -q LISTEN; }
tcp() { # <congestion control>, for a second
    "$weft" lab exec "$lab" 1 -- "$WEFT_FLOW" recv tcp 10.77.0.2 7701 >"$tap_tmp/tcp" &
    recv=$!
    lab_until 120 listening
    seen="no flow"
    if ! "$weft" lab exec "$lab" 0 -- "$WEFT_FLOW" send tcp 10.77.0.2 7701 1 "$1"; then
        kill "$recv"
        wait "$recv"
        return 1
    fi
    wait "$recv"
    bytes=$(sed -n 's/^bytes //p' "$tap_tmp/tcp")
    seen="$bytes bytes in a second"
    within "$bytes" 8000000 30000000
}
for cc in reno cubic; do
    judge "TCP $cc moves 64 to 240 Mbit/s" tcp $cc
done
# Number of enabled segmentation and GRO features of a veth end, and 1 if gro_max_size is 1.
joined() { # <namespace> <interface>
    "$weft" lab exec "$lab" "$1" -- ethtool -k "$2" | grep -E 'segmentation|gso|gro|large-receive' |
        grep -c ': on'
    "$weft" lab exec "$lab" "$1" -- ip -d link show "$2" | grep -c 'gro_max_size 1 '
}
tap_is "segmentation offload and GRO are off at a host" "$(joined 1 eth0 | tr '\n' ' ')" "0 1 "
tap_is "segmentation offload and GRO are off at the switch" "$(joined switch h1 | tr '\n' ' ')" "0 1 "
# Mean packet size on the link from the switch to h1, in bytes, since `up`: the counters include all
# flows of this lab.
carried() {
    "$weft" lab exec "$lab" switch -- sh -c 'cd /sys/class/net/h1/statistics && cat tx_bytes tx_packets' |
        paste -sd ' ' | awk '{ printf "%d", $1 / $2 }'
}
between "packets on the link are at most 1514 bytes" "$(carried)" 1000 1514

# ---- with --offload ------------------------------------------------------------------------------
tap_is "status reports offload false" "$(lab_fact "$lab" offload)" false
up --hosts 2 --rate 200mbit --offload
tap_is "status reports offload true with --offload" "$(lab_fact "$lab" offload)" true
tap_like "the table of status shows offload on" "$("$weft" lab status)" "^$lab .* on  "
for end in "1 eth0" "switch h1"; do
    # shellcheck disable=SC2086
    set -- $end
    features=$("$weft" lab exec "$lab" "$1" -- ethtool -k "$2")
    for feature in tcp-segmentation-offload generic-segmentation-offload tx-udp-segmentation \
        generic-receive-offload; do
        tap_like "$feature of $2 is on" "$features" "$feature: on"
    done
    tap_is "the GRO size of $2 is 65536" "$("$weft" lab exec "$lab" "$1" -- ip -d link show "$2" |
        grep -c 'gro_max_size 65536')" 1
done
judge "with --offload TCP cubic moves 64 to 240 Mbit/s" tcp cubic
between "packets on the link are larger than 3000 bytes" "$(carried)" 3000 65536
for conflict in "--loss 0.01" "--burst-loss 0.01:5" "--buffer 64kb"; do
    # shellcheck disable=SC2086
    tap_run_fails "--offload with $conflict is rejected" 2 "$weft" lab run --hosts 2 --offload $conflict -- true
    tap_like "the error names the 64 KB segments" "$(cat "$tap_tmp/run.out")" '^weft lab run: --offload.* 64 KB'
done

# ---- spine and leaf ------------------------------------------------------------------------------
up --topology spine-leaf --spines 2 --leaves 3 --hosts 2 --rate 50mbit --core-rate 40mbit
tap_is "spine-leaf: 3 leaves of 2 hosts are six hosts" "$(lab_fact "$lab" hosts)" 6
over() { # packets that leaf0 has sent to each spine
    for spine in spine0 spine1; do
        "$weft" lab exec "$lab" leaf0 -- tc -s qdisc show dev $spine |
            sed -n 's/.* \([0-9]*\) pkt.*/\1/p' | head -n 1
    done | tr '\n' ' '
}
spread=
# Sets spread, the packets sent to each spine; true once their sum is all packets sent.
crossed() {
    spread=$(echo "$before $(over)" | awk '{ print $3 - $1, $4 - $2 }')
    [ "$(echo "$spread" | awk '{ print $1 + $2 }')" = "$sent" ]
}
both() { echo "$spread" | awk '{ exit !($1 > 0 && $2 > 0) }'; }
before=$(over)
sent=0
# Each run of blast uses another source port. The probability that ECMP selects one spine for all
# forty is negligible.
until both || [ $sent = 200 ]; do
    "$weft" lab exec "$lab" 0 -- "$WEFT_BLAST" send 10.77.0.6 5
    sent=$((sent + 5))
    lab_until 120 crossed || break
done
tap_run "packets between leaves cross the spines" crossed
tap_run "ECMP uses both spines" both
tap_is "a flow uses only one spine" "$(echo "$spread" | awk '{ print $1 % 5, $2 % 5 }')" "0 0"
rate "between leaves a flow is limited by --core-rate" 0 5 40 800
rate "within a leaf a flow is limited by --rate" 0 1 50 1000

# ---- rates over time -----------------------------------------------------------------------------
rates() { # uplink and downlink rate of h1, configured in the kernel
    for of in "h1 eth0" "switch h1"; do
        # shellcheck disable=SC2086
        set -- $of
        "$weft" lab exec "$lab" "$1" -- tc class show dev "$2" | sed -n 's/.* rate \([^ ]*\) .*/\1/p'
    done | tr '\n' ' '
}
are() { [ "$(rates)" = "$1" ]; }
down_is() { [ "$(rates | cut -d ' ' -f 2)" = "$1" ]; }
printf '# a link that changes\n0.2 h1 20mbit\n0.4 1 30mbit up\n' >"$tap_tmp/rates"
up --hosts 2 --rate 100mbit --trace "$tap_tmp/rates"
tap_run "--trace changes the rates" lab_until 120 are "30Mbit 20Mbit "
printf '0.6 1 60mbit down\n' >>"$tap_tmp/rates"
up --hosts 2 --rate 100mbit --trace "$tap_tmp/rates"
tap_run "--trace applies the last entry, too" lab_until 120 are "30Mbit 60Mbit "
printf '0 h1 20mbit\n1 h1 40mbit\n2 repeat\n' >"$tap_tmp/rates"
up --hosts 2 --rate 100mbit --trace "$tap_tmp/rates"
tap_run "--trace with repeat reaches its last rate" lab_until 120 down_is 40Mbit
tap_run "it starts again with its first rate" lab_until 120 down_is 20Mbit
tap_run "it reaches its last rate again" lab_until 120 down_is 40Mbit
tap_is "the holder's log is empty" "$(cat "/run/weft/lab/$lab.log")" ""

tap_done
