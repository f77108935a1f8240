#!/bin/sh
# `weft keygen` creates a key file with restricted permissions, never overwrites one, and identifies keys
# without printing them.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
key=$tap_tmp/job.key

# says <name> <exit status> <expected text> <arguments of weft keygen...>
says() {
    name=$1
    wanted=$2
    sentence=$3
    shift 3
    tap_run_fails "$name" "$wanted" "$WEFT_BIN" keygen "$@"
    tap_like "$name: says so" "$(cat "$tap_tmp/run.out")" "$sentence"
}

# ---- creating ----
umask 000
tap_run "makes a key" "$WEFT_BIN" keygen "$key"
made=$(cat "$tap_tmp/run.out")
tap_like "and shows its fingerprint" "$made" "^$key: key [0-9a-f]\{8\}\$"
tap_is "for the owner only" "$(stat -c %a "$key")" 600
tap_run "64 digits and a newline" grep -qx '[0-9a-f]\{64\}' "$key"
tap_is "and nothing else" "$(wc -c <"$key")" 65
before=$(cat "$key")
tap_is "the key itself is not shown" "$(echo "$made" | grep -c "$before")" 0
says "never overwrites" 1 'exists already' "$key"
tap_is "and has not" "$(cat "$key")" "$before"
ln -s nowhere "$tap_tmp/link"
says "not through a link either" 1 'exists already' "$tap_tmp/link"
tap_run "which still leads nowhere" test ! -e "$tap_tmp/nowhere"
says "no folder" 1 'cannot make .*No such file' "$tap_tmp/no/job.key"
# A full disk: no file remains. (The output is a pipe, which has no size limit.)
said=$( (trap '' XFSZ && ulimit -f 0 && "$WEFT_BIN" keygen "$tap_tmp/full.key") 2>&1; echo "exit $?")
tap_like "a file that cannot be written" "$said" "^weft keygen: cannot write $tap_tmp/full.key: "
tap_like "is a failure" "$said" '^exit 1$'
tap_run "and is not left behind" test ! -e "$tap_tmp/full.key"
umask 777
tap_run "--json" "$WEFT_BIN" keygen --json "$tap_tmp/other.key"
umask 022
tap_is "under any umask" "$(stat -c %a "$tap_tmp/other.key")" 600
cp "$tap_tmp/run.out" "$tap_tmp/json"
tap_run "the JSON has path and fingerprint" jq -e --arg path "$tap_tmp/other.key" \
    '.path == $path and (.fingerprint | test("^[0-9a-f]{8}$")) and length == 2' "$tap_tmp/json"

# ---- comparing ----
fingerprint=$(echo "$made" | sed -n 's/.*: key //p')
tap_is "--check agrees" "$("$WEFT_BIN" keygen --check "$key")" "$key: key $fingerprint"
tap_is "--check in JSON too" \
    "$("$WEFT_BIN" keygen "$key" --check --json | jq -r .fingerprint)" "$fingerprint"
tap_run "another key has another" test "$fingerprint" != "$(jq -r .fingerprint "$tap_tmp/json")"
cp -p "$key" "$tap_tmp/copy"
tap_is "a copy has the same" "$("$WEFT_BIN" keygen --check "$tap_tmp/copy")" \
    "$tap_tmp/copy: key $fingerprint"
# As documented: SHA-256 of "weft key id" and the 32 bytes.
if command -v sha256sum >/dev/null; then
    bytes=$(sed 's/../\\\\x&/g' "$key")
    digest=$(bash -c "printf 'weft key id%b' \"$bytes\"" | sha256sum | cut -c 1-8)
    tap_is "the fingerprint is what the text says" "$fingerprint" "$digest"
else
    tap_skip "the fingerprint is what the text says" "no sha256sum"
fi

# ---- refusing ----
chmod 640 "$key"
says "readable by the group" 1 "chmod 600 $key" --check "$key"
chmod 604 "$key"
says "readable by others" 1 "chmod 600 $key" --check "$key"
chmod 600 "$key"
says "missing" 1 'weft keygen' --check "$tap_tmp/missing"
says "a folder" 1 'not a regular file' --check "$tap_tmp"
head -c 40 "$key" >"$tap_tmp/bad"
chmod 600 "$tap_tmp/bad"
says "cut short" 1 'cut short: 40 hexadecimal digits instead of 64' --check "$tap_tmp/bad"
sed 's/^...../&x/' "$key" >"$tap_tmp/bad"
says "wrong character" 1 'character 6 is not a hexadecimal digit' --check "$tap_tmp/bad"
cat "$key" "$key" | tr -d '\n' >"$tap_tmp/bad"
says "too long" 1 'too long' --check "$tap_tmp/bad"
: >"$tap_tmp/bad"
says "empty" 1 'is empty' --check "$tap_tmp/bad"
if [ -w /dev/full ]; then
    status=0
    "$WEFT_BIN" keygen --check "$key" >/dev/full 2>"$tap_tmp/err" || status=$?
    tap_is "an answer that cannot be written fails" "$status" 1
else
    tap_skip "an answer that cannot be written fails" "no /dev/full"
fi

tap_done
