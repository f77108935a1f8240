#!/bin/sh
# `weft keygen` creates a key file with restricted permissions, never overwrites one, and identifies keys
# without printing them.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
key=$tap_tmp/job.key

# keygen <name> <exit status> <expected text> <arguments of weft keygen...>
keygen() {
    name=$1
    wanted=$2
    sentence=$3
    shift 3
    tap_run_fails "$name" "$wanted" "$WEFT_BIN" keygen "$@"
    tap_like "$name: the output is as expected" "$(cat "$tap_tmp/run.out")" "$sentence"
}

# ---- creating ----
umask 000
tap_run "creates a key file" "$WEFT_BIN" keygen "$key"
made=$(cat "$tap_tmp/run.out")
tap_like "prints its fingerprint" "$made" "^$key: key [0-9a-f]\{8\}\$"
tap_is "the file's mode is 600" "$(stat -c %a "$key")" 600
tap_run "the file has a line of 64 hexadecimal digits" grep -qx '[0-9a-f]\{64\}' "$key"
tap_is "the file has 65 bytes" "$(wc -c <"$key")" 65
before=$(cat "$key")
tap_is "the key is not printed" "$(echo "$made" | grep -c "$before")" 0
keygen "never overwrites" 1 'exists already' "$key"
tap_is "the existing file is unchanged" "$(cat "$key")" "$before"
ln -s nowhere "$tap_tmp/link"
keygen "not through a link either" 1 'exists already' "$tap_tmp/link"
tap_run "the target of the symbolic link is not created" test ! -e "$tap_tmp/nowhere"
keygen "no folder" 1 'cannot make .*No such file' "$tap_tmp/no/job.key"
# A full disk: no file remains. (The output is a pipe, which has no size limit.)
seen=$( (trap '' XFSZ && ulimit -f 0 && "$WEFT_BIN" keygen "$tap_tmp/full.key") 2>&1; echo "exit $?")
tap_like "a full disk is reported" "$seen" "^weft keygen: cannot write $tap_tmp/full.key: "
tap_like "a full disk: exit status 1" "$seen" '^exit 1$'
tap_run "a full disk: no file remains" test ! -e "$tap_tmp/full.key"
umask 777
tap_run "--json creates a key file" "$WEFT_BIN" keygen --json "$tap_tmp/other.key"
umask 022
tap_is "the mode is 600 under umask 777" "$(stat -c %a "$tap_tmp/other.key")" 600
cp "$tap_tmp/run.out" "$tap_tmp/json"
tap_run "the JSON has path and fingerprint" jq -e --arg path "$tap_tmp/other.key" \
    '.path == $path and (.fingerprint | test("^[0-9a-f]{8}$")) and length == 2' "$tap_tmp/json"

# ---- comparing ----
fingerprint=$(echo "$made" | sed -n 's/.*: key //p')
tap_is "--check prints the same fingerprint" "$("$WEFT_BIN" keygen --check "$key")" "$key: key $fingerprint"
tap_is "--check --json prints the same fingerprint" \
    "$("$WEFT_BIN" keygen "$key" --check --json | jq -r .fingerprint)" "$fingerprint"
tap_run "another key has another fingerprint" test "$fingerprint" != "$(jq -r .fingerprint "$tap_tmp/json")"
cp -p "$key" "$tap_tmp/copy"
tap_is "a copy of the key has the same fingerprint" "$("$WEFT_BIN" keygen --check "$tap_tmp/copy")" \
    "$tap_tmp/copy: key $fingerprint"
# As documented: SHA-256 of "weft key id" and the 32 bytes.
if command -v sha256sum >/dev/null; then
    bytes=$(sed 's/../\\\\x&/g' "$key")
    digest=$(bash -c "printf 'weft key id%b' \"$bytes\"" | sha256sum | cut -c 1-8)
    tap_is "the fingerprint is the documented hash" "$fingerprint" "$digest"
else
    tap_skip "the fingerprint is the documented hash" "no sha256sum"
fi

# ---- invalid key files ----
chmod 640 "$key"
keygen "readable by the group" 1 "chmod 600 $key" --check "$key"
chmod 604 "$key"
keygen "readable by others" 1 "chmod 600 $key" --check "$key"
chmod 600 "$key"
keygen "missing" 1 'weft keygen' --check "$tap_tmp/missing"
keygen "a folder" 1 'not a regular file' --check "$tap_tmp"
head -c 40 "$key" >"$tap_tmp/bad"
chmod 600 "$tap_tmp/bad"
keygen "cut short" 1 'cut short: 40 hexadecimal digits instead of 64' --check "$tap_tmp/bad"
sed 's/^...../&x/' "$key" >"$tap_tmp/bad"
keygen "wrong character" 1 'character 6 is not a hexadecimal digit' --check "$tap_tmp/bad"
cat "$key" "$key" | tr -d '\n' >"$tap_tmp/bad"
keygen "too long" 1 'too long' --check "$tap_tmp/bad"
: >"$tap_tmp/bad"
keygen "empty" 1 'is empty' --check "$tap_tmp/bad"
if [ -w /dev/full ]; then
    status=0
    "$WEFT_BIN" keygen --check "$key" >/dev/full 2>"$tap_tmp/err" || status=$?
    tap_is "output that cannot be written: exit status 1" "$status" 1
else
    tap_skip "output that cannot be written: exit status 1" "no /dev/full"
fi

tap_done
