#!/bin/sh
# `weft doctor` reports the same checks as a table and as JSON, and its exit status is the overall
# result.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

status=0
"$WEFT_BIN" doctor >"$tap_tmp/table" || status=$?
tap_like "the table ends with a summary" "$(tail -n 1 "$tap_tmp/table")" \
    '^[0-9]* facts, [0-9]* warnings, [0-9]* missing: weft '
missing=$(grep -c '^MISSING' "$tap_tmp/table")
tap_is "exit status 1 if and only if something is missing" "$status" "$((missing > 0))"

"$WEFT_BIN" doctor --json >"$tap_tmp/json"
tap_run "the JSON output has the facts" jq -e '
    (.ok | type == "boolean") and (.facts | length >= 8) and
    all(.facts[]; (.name | length > 0) and (.value | length > 0) and
        (.state | IN("ok", "warn", "missing")) and
        ((.state == "ok") or (.advice | length > 0)))' "$tap_tmp/json"
tap_is "table and JSON have the same number of facts" "$(jq '.facts | length' "$tap_tmp/json")" \
    "$(grep -c '^\(ok\|warn\|MISSING\) ' "$tap_tmp/table")"

tap_run "the JSON output has the fact xdp_aggregation" jq -e \
    '[.facts[] | select(.name == "xdp_aggregation")] | length == 1' "$tap_tmp/json"

# A port that a server of this test uses is reported as in use.
"$WEFT_BIN" keygen "$tap_tmp/job.key" >"$tap_tmp/keygen"
"$WEFT_BIN" server --key-file "$tap_tmp/job.key" --port 0 --workers 1 >"$tap_tmp/server" &
server=$!
tries=0
until [ -s "$tap_tmp/server" ] || [ "$tries" = 2400 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
port=$(sed -n 's/^shard 0 of 1: 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$tap_tmp/server")
tap_like "the server prints its port" "$port" '^[1-9][0-9]*$'
fact=$("$WEFT_BIN" doctor --port "$port" --json | jq -r ".facts[] | select(.name == \"port_$port\").state")
tap_like "a port in use is not ok" "$fact" '^\(warn\|missing\)$'
tap_run_fails "a server on a port in use fails" 1 "$WEFT_BIN" server \
    --key-file "$tap_tmp/job.key" --port "$port"
tap_like "the error names the port" "$(cat "$tap_tmp/run.out")" "weft server: .*$port.*in use"
kill -TERM "$server"
status=0
wait "$server" || status=$?
tap_is "a server exits with 0 after SIGTERM" "$status" 0
tap_run "at its end it prints its counters" sh -c \
    "sed 1d '$tap_tmp/server' | jq -e '.datagrams_received == 0 and .messages == 0'"

# The job key.
tap_run "the fact of a valid key is ok and has its fingerprint" sh -c "'$WEFT_BIN' doctor --json \
    --key-file '$tap_tmp/job.key' | jq -e '.facts[] | select(.name == \"job_key\") |
    .state == \"ok\" and (.value | test(\"^fingerprint [0-9a-f]{8}$\"))'"
chmod 644 "$tap_tmp/job.key"
tap_run_fails "a key file readable by others: exit status 1" 1 "$WEFT_BIN" doctor \
    --key-file "$tap_tmp/job.key"
tap_like "the advice is chmod 600" "$(cat "$tap_tmp/run.out")" "chmod 600 $tap_tmp/job.key"

tap_done
