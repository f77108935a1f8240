# Common functions of the tests of `weft lab`; they source it after tests/lib/tap.sh.

# Skips the rest of the test if no lab can be created: not root, or a tool or permission is missing.
lab_or_skip() {
    lab_why=
    if [ "$(id -u)" != 0 ]; then
        lab_why="needs root"
    elif ! "$WEFT_BIN" lab run --hosts 2 --loss 0.5 -- true 2>"$tap_tmp/probe"; then
        lab_why=$(grep -e 'install the package' -e 'privileged' -e 'mount point' "$tap_tmp/probe" | head -n 1)
    fi
    if [ -n "$lab_why" ]; then
        tap_skip "a lab" "$lab_why"
        tap_done
    fi
}

# lab_until <seconds> <command...>: true as soon as the command succeeds.
lab_until() {
    lab_tries=$(($1 * 20))
    shift
    until "$@"; do
        lab_tries=$((lab_tries - 1))
        [ "$lab_tries" -gt 0 ] || return 1
        sleep 0.05
    done
}

# A number of one lab's facts.
lab_fact() {
    "$WEFT_BIN" lab status "$1" --json | jq -r ".[0].$2"
}

# lab_netns <lab> <host>: the path of a host's network, for programs that enter it themselves.
lab_netns() {
    echo "/proc/$(lab_fact "$1" holder)/root/run/weft/netns/h$2"
}
