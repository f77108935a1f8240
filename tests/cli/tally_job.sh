# Common start of the tests with jobs of tests/cli/tally.c; they source it after tests/lib/tap.sh.
# shellcheck shell=sh disable=SC2034
cd "$tap_tmp" || exit 1
TMPDIR=$tap_tmp
export TMPDIR
unset WEFT_ROLE WEFT_RANK WEFT_WORKERS WEFT_SHARDS WEFT_COORDINATOR WEFT_SERVERS WEFT_JOB_KEY WEFT_JOB
weft=$WEFT_BIN
tally=$WEFT_TALLY_BIN
unset MALLOC_PERTURB_

# tally_jobs <jobs> <seed> <name>: runs the script's one_job with this seed and the following ones;
# one case each.
tally_jobs() {
    i=0
    while [ $i -lt "$1" ]; do
        one_job $(($2 + i)) >job.out 2>&1
        result=$?
        grep '^#' job.out
        if [ $result -eq 0 ]; then
            tap_pass "job $(($2 + i)) $3"
        else
            tap_fail "job $(($2 + i)) $3" "$(tail -n 70 job.out)"
        fi
        i=$((i + 1))
    done
}
