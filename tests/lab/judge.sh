# For measurements in real time, which must not depend on a busy machine; tests source it after
# tests/lib/tap.sh. WEFT_STEAL_MONITOR is the program of tests/lab/steal_monitor.c.
#
# One measurement within its limits passes: stolen processor time makes links slower and queues longer,
# and never makes a wrong link look right. A measurement outside its limits counts only if the steal
# monitor saw the processors available throughout, and the measurement did not set judge_unfit, the
# reason why it is not valid. Three such measurements fail the test. With fewer, the test is skipped
# with the reason.

judge_left=60 # seconds that this script may still spend on failed measurements

judge_begin() {
    : >"$tap_tmp/steal_monitor"
    "$WEFT_STEAL_MONITOR" >"$tap_tmp/steal_monitor" &
    judge_steal_monitor=$!
    until grep -q ready "$tap_tmp/steal_monitor"; do
        if ! kill -0 "$judge_steal_monitor" 2>/dev/null; then
            tap_fail "the steal monitor runs" "$WEFT_STEAL_MONITOR ended before it was ready"
            break
        fi
        sleep 0.01
    done
}

# Sets judge_disturbed: why the machine disturbed the measurement; empty if it did not.
judge_end() {
    kill -TERM "$judge_steal_monitor" 2>/dev/null
    wait "$judge_steal_monitor"
    judge_steal_monitor=
    judge_report=$(tail -n 1 "$tap_tmp/steal_monitor")
    judge_disturbed=$(echo "$judge_report" | awk '
        $1 != "late" { print "the steal monitor ended without a report"; exit }
        $2 > 100 { why = why sprintf(", processors were unavailable for %.1f %% of the time", $2 / 10) }
        $4 > 100 { why = why sprintf(", one was unavailable for %d ms", $4) }
        $6 > 100 { why = why sprintf(", the hypervisor took %.1f %%", $6 / 10) }
        $8 > 600 { why = why sprintf(", %.1f processes wanted each of them", $8 / 100) }
        END { print substr(why, 3) }')
}

# judge <name> <command...>: the command measures, sets `seen` (a text), and succeeds if the result
# is within its limits. judge_unfit is empty when it begins.
judge() {
    judge_name=$1
    shift
    judge_tries=0
    judge_wrong=0
    judge_why=
    while [ "$judge_wrong" -lt 3 ] && [ "$judge_tries" -lt 12 ] &&
        { [ "$judge_left" -gt 0 ] || [ "$judge_tries" -lt 3 ]; }; do
        judge_tries=$((judge_tries + 1))
        judge_start=$(date +%s)
        judge_unfit=
        judge_begin
        if "$@"; then
            judge_end
            tap_pass "$judge_name ($seen)"
            return
        fi
        judge_end
        judge_disturbed=${judge_disturbed:-$judge_unfit}
        judge_left=$((judge_left - $(date +%s) + judge_start))
        echo "# $judge_name: seen $seen${judge_disturbed:+; $judge_disturbed}"
        judge_why=${judge_disturbed:-$judge_why}
        [ -n "$judge_disturbed" ] || judge_wrong=$((judge_wrong + 1))
    done
    if [ "$judge_wrong" -ge 3 ]; then
        tap_fail "$judge_name" "seen, although the processors were available: $seen ($judge_report)"
    else
        tap_skip "$judge_name" "no valid measurement on this machine: $judge_why; seen $seen"
    fi
}
