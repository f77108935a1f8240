#!/bin/sh
# Two TAP cases for a range of simulator seeds: swarm.sh 1..200
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

seeds=${WEFT_SEEDS:-$1}
tap_run "seeds $seeds" "$WEFT_BIN" sim swarm --seeds "$seeds"
# The summary of a good run too: how much was simulated is worth seeing in the log.
sed 's/^/# /' "$tap_tmp/run.out" | tail -n 20
tap_run "seeds $seeds of parameter servers, bf16" "$WEFT_BIN" sim swarm --bf16 --seeds "$seeds"
tail -n 2 "$tap_tmp/run.out" | sed 's/^/# /'
tap_done
