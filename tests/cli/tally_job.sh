# What the tests of jobs of tests/cli/tally.c begin with; they source it after tests/lib/tap.sh.
# shellcheck shell=sh disable=SC2034
cd "$tap_tmp" || exit 1
TMPDIR=$tap_tmp
export TMPDIR
unset WEFT_ROLE WEFT_RANK WEFT_WORKERS WEFT_SHARDS WEFT_SCHEDULER WEFT_SERVERS WEFT_JOB_KEY WEFT_JOB
weft=$WEFT_BIN
tally=$WEFT_TALLY_BIN
unset MALLOC_PERTURB_

# until_true <seconds> <command...>
until_true() {
    tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}
