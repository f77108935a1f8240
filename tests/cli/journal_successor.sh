#!/bin/sh
# A server reads the journal of a frozen predecessor, or a journal that is damaged, belongs to another job
# or has a later version. Every record is replayed, or its loss is reported. Also a journal whose
# pages cannot be written while its server runs.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
weft=$WEFT_BIN
cd "$tap_tmp" || exit 1

# serve <options...>: start a server; return when its shard is reachable or it has ended
serve() {
    : >server.out
    "$weft" server --security none --port 0 --checkpoint ckpt --checkpoint-every 86400s --journal here \
        --journal-mib 64 "$@" >server.out 2>&1 &
    server=$!
    tap_until eval "grep -q '^shard 0' server.out || ! kill -0 $server 2>/dev/null"
    at=$(sed -n 's/^shard 0 of 1: //p' server.out)
    [ -n "$at" ]
}

load() {
    "$weft" load --security none --servers "$at" --workers 1 --mix 1:0 --keys 500 --zipf-top 50:0.1 --rate 200 --start-timeout 60 \
        --warmup 0 --seconds 1 >load.out 2>&1
}

# crash <signal>
crash() {
    kill "-$1" "$server"
    [ "$1" = STOP ] || wait "$server" 2>/dev/null
    return 0
}

files() { find here -maxdepth 1 -type f | wc -l; }
quarantined() { find here/quarantine -type f | wc -l; }
# The path of the only journal.
journal() { find here -maxdepth 1 -type f; }

# overwrite <offset> <bytes, octal>
# shellcheck disable=SC2059
overwrite() { printf "$2" | dd of="$(journal)" bs=1 seek="$1" conv=notrunc 2>/dev/null; }

tap_at_exit 'kill -KILL "$server" "$frozen" 2>/dev/null; wait'
frozen=
mkdir here
tap_run "a server starts" serve
tap_run "pushes succeed" load
crash STOP
frozen=$server
tap_run "its successor starts while it is frozen" serve --restarted
tap_like "the successor replays the journal" "$(cat server.out)" 'journal: [1-9][0-9]* chunks of pushes replayed'
tap_is "without a warning" "$(grep -c 'quarantine\|damaged\|lost' server.out)" 0
chunks=$(sed -n 's/.*journal: \([0-9]*\) chunks.*/\1/p' server.out)
tap_is "one journal is left" "$(files)" 1
kill -KILL "$frozen"
wait "$frozen" 2>/dev/null
crash KILL
tap_run "the next successor starts" serve --restarted
tap_like "it replays as many chunks" "$(cat server.out)" "journal: $chunks chunks of pushes replayed"
crash KILL

# ---- journals that cannot be replayed completely are kept ----
cp "$(journal)" kept
# An offset within the written part, which is shorter on a slow machine. (After it the file is
# zero.)
written=$(tr -d '\000' <kept | wc -c)
tap_run "a byte in the middle is overwritten" overwrite $((written / 2)) 'xyzzy'
tap_run "a server starts with the damaged journal" serve --restarted
tap_like "it reports the lost records" "$(cat server.out)" 'damaged, .*its last [1-9][0-9]* records ([1-9][0-9]* bytes) are lost'
tap_like "it replays the records before the damage" "$(cat server.out)" 'journal: [1-9][0-9]* chunks of pushes replayed'
tap_is "the damaged journal is in quarantine" "$(quarantined)" 1
crash KILL

cp kept "$(journal)"
overwrite 8 '\011'
before=$(cksum <"$(journal)")
tap_run_fails "a server rejects a journal of a later version" 2 "$weft" server --security none --port 0 \
    --checkpoint ckpt --journal here --journal-mib 64 --restarted
tap_like "the error names the format version" "$(cat run.out)" 'has another format version: start the release that wrote it'
tap_is "the journal is unchanged" "$(cksum <"$(journal)")" "$before"
tap_is "no other file is created" "$(files)" 1
cp kept "$(journal)"
tap_run "a server starts with the intact journal" serve --restarted
tap_like "it replays all chunks" "$(cat server.out)" "journal: $chunks chunks of pushes replayed"
crash KILL

# ---- a start that was interrupted between its claim and its first service ----
last() { find ckpt/log -name '[0-9]*' ! -name '*.tmp' | sed 's,.*/0*,,' | sort -n | tail -n 1; }
record() { printf 'ckpt/log/%012d' $(($1)); }
claim=$(grep -l '"kind": "claim"' ckpt/log/* | head -n 1)
before=$(last)
cp "$claim" "$(record before+1)"
: >"$(record before+2)"
leftover=$(printf 'here/journal-0000-%012d' $((before + 1)))
cp "$(journal)" "$leftover"
tap_run_fails "a server does not start if a damaged record may have said that the interrupted one served" 1 "$weft" server \
    --security none --port 0 --checkpoint ckpt --journal here --journal-mib 64 --restarted
tap_like "the error names the journal in doubt" "$(cat run.out)" "$leftover may be the journal of the previous process"
rm "$leftover"
# As after an upgrade: the release before left empty records in place of those that it removed.
before=$(last)
: >"$(record before+1)"
cp "$claim" "$(record before+2)"
cp "$(journal)" "$(printf 'here/journal-0000-%012d' $((before + 2)))"
tap_run "a server starts if the damaged records are before the claim of the interrupted one" serve --restarted
tap_like "it replays all chunks" "$(cat server.out)" "journal: $chunks chunks of pushes replayed"
tap_is "the journal of the interrupted one is removed" "$(files)" 1
crash KILL

WEFT_JOB=other
export WEFT_JOB
tap_run "a server of another job starts" serve --restarted
tap_like "it reports that it does not use the journal" "$(cat server.out)" 'of another job.* It is kept, in quarantine'
tap_is "the journal is in quarantine" "$(quarantined)" 2
crash KILL

# ---- pages that cannot be written, emulated by a truncated file ----
unset WEFT_JOB
rm -rf here ckpt
mkdir here
tap_run "a server starts with --journal-fsync" serve --journal-fsync
tap_run "pushes succeed" load
truncate -s 4096 "$(journal)"
tap_run "pushes beyond the end of the file succeed" load
tap_run "the server reports that the journal failed" tap_until grep -q 'the journal failed' server.out
tap_run "pushes still succeed" load
kill "$server"
wait "$server"
tap_is "it reports that once" "$(grep -c 'the journal failed' server.out)" 1
tap_like "its counters have the failed journal" "$(tr -d '[:space:]' <server.out)" '"shard_journal_failed":1,'
tap_done
