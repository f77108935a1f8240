#!/bin/sh
# The aggregation box on veth interfaces, in native mode: which worker receives which reply. It runs in a
# network namespace that ends with the program. Needs root.
# WEFT_AGGREGATE is the program of tests/lab/aggregate.c.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
lab_or_skip

cat >"$tap_tmp/network" <<'END'
#!/bin/sh
set -e
for i in 0 1; do
    ip link add w$i type veth peer name p$i
    ip link set w$i up
    ip link set p$i up
done
exec "$@"
END
if [ "$("$WEFT_BIN" doctor --json | jq -r '.facts[] | select(.name == "xdp_aggregation").state')" != ok ]; then
    tap_skip "aggregation box on veth interfaces" "no XDP here: see weft doctor"
else
    tap_include "aggregation box on veth interfaces" unshare -n sh "$tap_tmp/network" "$WEFT_AGGREGATE" 50
fi
tap_done
