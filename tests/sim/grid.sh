#!/bin/sh
# One TAP case: the thin incast grid is within its limits. grid.sh [options of weft sim grid]
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

tap_run "incast grid" "$WEFT_BIN" sim grid "$@"
# Print the cells of a successful run, too: the log shows their distance from the limits.
[ "$tap_failed" -gt 0 ] || sed 's/^/# /' "$tap_tmp/run.out"
tap_done
