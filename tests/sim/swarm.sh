#!/bin/sh
# TAP cases for a range of simulator seeds: swarm.sh 1..200
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

seeds=${WEFT_SEEDS:-$1}
tap_run "seeds $seeds" "$WEFT_BIN" sim swarm --seeds "$seeds"
# Print the summary of a successful run, too: the log shows how much was simulated.
sed 's/^/# /' "$tap_tmp/run.out" | tail -n 20
for type in bf16 int8; do
    tap_run "seeds $seeds of parameter servers, $type" "$WEFT_BIN" sim swarm --value-type $type \
        --seeds "$seeds"
    tail -n 2 "$tap_tmp/run.out" | sed 's/^/# /'
done
tap_run "seeds $seeds of parameter servers, with aggregators" "$WEFT_BIN" sim swarm --via --seeds "$seeds"
tail -n 2 "$tap_tmp/run.out" | sed 's/^/# /'
tap_run "seeds $seeds of parameter servers, with replicas" "$WEFT_BIN" sim swarm --replicas --seeds "$seeds"
tail -n 3 "$tap_tmp/run.out" | sed 's/^/# /'
"$WEFT_BIN" sim swarm --replicas --seeds 1..12 --json >"$tap_tmp/replicas.json"
tap_run "its counts as JSON" python3 -c "
import json
r = json.load(open('$tap_tmp/replicas.json'))['replicas']
assert r['promotions'] > 0 and r['transfers'] > 0 and 0 <= r['loss_share_max'] <= 1.000001, r
assert {'promotions_with_loss', 'pushes_lost', 'deaths_skipped', 'holds'} <= set(r), r"
tap_run "seeds $seeds of parameter servers, all of whose processes die" "$WEFT_BIN" sim swarm --replicas --via \
    --seeds "$seeds"
tail -n 4 "$tap_tmp/run.out" | sed 's/^/# /'
tap_run_fails "--replicas and --value-type exclude each other" 2 "$WEFT_BIN" sim swarm --replicas --value-type bf16
tap_done
