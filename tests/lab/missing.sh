#!/bin/sh
# The error of `weft lab up` when a program that it runs is missing: the command runs with a view of the
# file system without that program.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/lab/lab.sh
. "$WEFT_SOURCE_ROOT/tests/lab/lab.sh"
lab_or_skip
lab=missing-$$

# Runs a command with a /usr/bin and /usr/sbin that contain links to all their programs except one.
cat >"$tap_tmp/without" <<'END'
#!/bin/sh
set -e
work=$1
program=$2
shift 2
rm -rf "$work"
for folder in /usr/bin /usr/sbin; do
    all=$work/all$folder
    most=$work/most$folder
    mkdir -p "$all" "$most"
    mount --bind $folder "$all"
    cp -rs "$all/." "$most" 2>/dev/null
    rm -f "$most/$program"
done
for folder in /usr/bin /usr/sbin; do
    mount --bind "$work/most$folder" $folder
done
exec "$@"
END
chmod +x "$tap_tmp/without"

for row in ip:iproute2 tc:iproute2 nft:nftables; do
    program=${row%:*}
    if ! unshare --mount "$tap_tmp/without" "$tap_tmp/$program" "$program" sh -c "! command -v $program" \
        >"$tap_tmp/run.out" 2>&1; then
        tap_skip "without $program" "it is installed where this test cannot hide it: $(head -n 1 "$tap_tmp/run.out")"
        continue
    fi
    tap_run_fails "lab up fails without $program" 1 unshare --mount "$tap_tmp/without" "$tap_tmp/$program" "$program" \
        "$WEFT_BIN" lab up $lab --hosts 2 --loss 0.1
    tap_like "without $program the error names the package" "$(cat "$tap_tmp/run.out")" \
        "the program $program is missing: install the package ${row#*:}"
    tap_is "without $program lab up leaves no lab" "$(find /run/weft/lab -name "$lab*" 2>/dev/null)" ""
done
tap_run "a lab without losses does not need nft" unshare --mount "$tap_tmp/without" "$tap_tmp/nft" nft \
    "$WEFT_BIN" lab run --hosts 2 -- true
tap_done
