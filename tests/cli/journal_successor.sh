#!/bin/sh
# A server reads a journal of a frozen predecessor, or one that is damaged, belongs to another job
# or has a later version. Every record is replayed, or its loss is reported. Also a journal whose
# pages fail while its server runs.
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
aside() { find here/quarantine -type f | wc -l; }
# The path of the only journal.
journal() { find here -maxdepth 1 -type f; }

# overwrite <offset> <bytes, octal>
# shellcheck disable=SC2059
overwrite() { printf "$2" | dd of="$(journal)" bs=1 seek="$1" conv=notrunc 2>/dev/null; }

tap_at_exit 'kill -KILL "$server" "$frozen" 2>/dev/null; wait'
frozen=
mkdir here
tap_run "a server" serve
tap_run "and pushes" load
crash STOP
frozen=$server
tap_run "its successor starts beside it" serve --restarted
tap_like "and does all of it again" "$(cat server.out)" 'journal: [1-9][0-9]* chunks of pushes replayed'
tap_is "in silence" "$(grep -c 'quarantine\|damaged\|lost' server.out)" 0
chunks=$(sed -n 's/.*journal: \([0-9]*\) chunks.*/\1/p' server.out)
tap_is "one journal is left" "$(files)" 1
kill -KILL "$frozen"
wait "$frozen" 2>/dev/null
crash KILL
tap_run "and the next one" serve --restarted
tap_like "has as much" "$(cat server.out)" "journal: $chunks chunks of pushes replayed"
crash KILL

# ---- records that are not replayed stay ----
cp "$(journal)" kept
# An offset within the written part, which is shorter on a slow machine. (After it the file is
# zero.)
written=$(tr -d '\000' <kept | wc -c)
tap_run "a byte in the middle is another one" overwrite $((written / 2)) 'xyzzy'
tap_run "a server" serve --restarted
tap_like "says what is lost" "$(cat server.out)" 'damaged, .*its last [1-9][0-9]* records ([1-9][0-9]* bytes) are lost'
tap_like "and does the rest again" "$(cat server.out)" 'journal: [1-9][0-9]* chunks of pushes replayed'
tap_is "the damaged one is kept" "$(aside)" 1
crash KILL

cp kept "$(journal)"
overwrite 8 '\011'
before=$(cksum <"$(journal)")
tap_run_fails "a version to come ends the start" 2 "$weft" server --security none --port 0 \
    --checkpoint ckpt --journal here --journal-mib 64 --restarted
tap_like "in words" "$(cat run.out)" 'has another format version: start the release that wrote it'
tap_is "nothing is touched" "$(cksum <"$(journal)")" "$before"
tap_is "and nothing left behind" "$(files)" 1
cp kept "$(journal)"
tap_run "put right it is read" serve --restarted
tap_like "all of it" "$(cat server.out)" "journal: $chunks chunks of pushes replayed"
crash KILL

WEFT_JOB=other
export WEFT_JOB
tap_run "another job" serve --restarted
tap_like "says that it is not used" "$(cat server.out)" 'of another job.* It is kept, in quarantine'
tap_is "it is kept" "$(aside)" 2
crash KILL

# ---- pages that fail, emulated by a truncated file ----
unset WEFT_JOB
rm -rf here ckpt
mkdir here
tap_run "a server that has each answer wait for the disk" serve --journal-fsync
tap_run "and pushes" load
truncate -s 4096 "$(journal)"
tap_run "pushes behind the file's end" load
tap_run "the server says so" tap_until grep -q 'the journal failed' server.out
tap_run "lives, and takes more" load
kill "$server"
wait "$server"
tap_is "and says it once" "$(grep -c 'the journal failed' server.out)" 1
tap_like "and in its counters" "$(tr -d '[:space:]' <server.out)" '"shard_journal_failed":1,'
tap_done
