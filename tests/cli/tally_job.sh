# What the tests of jobs of tests/cli/tally.c begin with; they source it after tests/lib/tap.sh.
# shellcheck shell=sh disable=SC2034
cd "$tap_tmp" || exit 1
TMPDIR=$tap_tmp
export TMPDIR
unset WEFT_ROLE WEFT_RANK WEFT_WORKERS WEFT_SHARDS WEFT_SCHEDULER WEFT_SERVERS WEFT_JOB_KEY WEFT_JOB
weft=$WEFT_BIN
tally=$WEFT_TALLY_BIN
unset MALLOC_PERTURB_
