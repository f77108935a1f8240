#!/bin/sh
# One TAP case: the thin incast grid keeps its limits. grid.sh [options of weft sim grid]
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

tap_run "incast grid" "$WEFT_BIN" sim grid "$@"
# The cells of a good run too: how far they are from their limits is worth seeing in the log.
[ "$tap_failed" -gt 0 ] || sed 's/^/# /' "$tap_tmp/run.out"
tap_done
