# TAP for tests written in shell. Usage:
#
#   . "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
#   tap_run  "help names the verbs" "$WEFT_BIN" help          # passes when the command exits 0
#   tap_is   "version" "$("$WEFT_BIN" --version)" "weft 0.1.0"
#   tap_like "report has an AUC" "$(cat report.json)" '"test_auc"'   # a basic regular expression
#   tap_until grep -q ready server.out
#   tap_skip "train on a9a" "no data: set WEFT_DATA_DIR"
#   tap_done                                                   # the plan; always the last line
#
# $tap_tmp is a fresh folder, removed at exit. A script that dies before tap_done has no plan, and
# both meson and tools/run-tests count that as a failure.

tap_count=0
tap_failed=0
tap_tmp=$(mktemp -d)
trap 'rm -rf "$tap_tmp"' EXIT
trap 'exit 1' INT TERM

tap_pass() {
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1"
}

# tap_fail <name> [what was seen, any number of lines]
tap_fail() {
    tap_count=$((tap_count + 1))
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_count - $1"
    [ -z "${2:-}" ] || printf '%s\n' "$2" | sed 's/^/#   /'
}

# tap_skip <name> <why>
tap_skip() {
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1 # SKIP $2"
}

# Output goes to run.out when the command has ended: it may read that of the one before. (jq -e takes a
# file without a word for a success.) A test may have emptied PATH.
tap_keep() {
    tap_got=0
    "$@" >"$tap_tmp/run.new" 2>&1 || tap_got=$?
    command -p mv "$tap_tmp/run.new" "$tap_tmp/run.out"
    return $tap_got
}

# tap_run <name> <command...>: passes when the command exits 0.
tap_run() {
    tap_name=$1
    shift
    if tap_keep "$@"; then
        tap_pass "$tap_name"
    else
        tap_fail "$tap_name" "exit $? from: $*
$(cat "$tap_tmp/run.out")"
    fi
}

# tap_run_fails <name> <exit status> <command...>: passes when the command exits with that status.
tap_run_fails() {
    tap_name=$1
    tap_want=$2
    shift 2
    tap_keep "$@" || true
    if [ "$tap_got" = "$tap_want" ]; then
        tap_pass "$tap_name"
    else
        tap_fail "$tap_name" "exit $tap_got, wanted $tap_want, from: $*
$(cat "$tap_tmp/run.out")"
    fi
}

# tap_is <name> <seen> <wanted>
tap_is() {
    if [ "$2" = "$3" ]; then
        tap_pass "$1"
    else
        tap_fail "$1" "seen:   $2
wanted: $3"
    fi
}

# tap_like <name> <seen> <basic regular expression>
tap_like() {
    if printf '%s\n' "$2" | grep -q -e "$3"; then
        tap_pass "$1"
    else
        tap_fail "$1" "seen:   $2
wanted: a line matching $3"
    fi
}

# tap_until <command...>: waits until it succeeds; false after two minutes, which bound what hangs.
tap_until() {
    tap_tries=2400
    until "$@" >/dev/null 2>&1; do
        tap_tries=$((tap_tries - 1))
        [ $tap_tries -gt 0 ] || return 1
        sleep 0.05
    done
}

# tap_lines <n> <regular expression> <file>: it has so many such lines, or more
tap_lines() {
    [ "$(grep -c -e "$2" "$3" 2>/dev/null)" -ge "$1" ]
}

# tap_patient <name> <exit status> <basic regular expression> <command...>: passes when the command,
# which is given seconds as its last word, ends so and says so. Who stood still for so long has more.
tap_patient() {
    tap_name=$1
    tap_want=$2
    tap_regex=$3
    shift 3
    for tap_seconds in 2 8 32 120; do
        tap_keep "$@" $tap_seconds || true
        if [ "$tap_got" = "$tap_want" ] && grep -q -e "$tap_regex" "$tap_tmp/run.out"; then
            tap_pass "$tap_name"
            return
        fi
    done
    tap_fail "$tap_name" "exit $tap_got, wanted $tap_want and a line matching $tap_regex, from: $*
$(cat "$tap_tmp/run.out")"
}

# tap_port: prints a port that nobody has now, nor is given by the kernel: it gives those from 32768 on.
tap_port() {
    for tap_draw in $(od -An -N40 -tu2 /dev/urandom); do
        tap_port=$((10000 + tap_draw % 20000))
        grep -q "$(printf ':%04X ' $tap_port)" /proc/net/udp* /proc/net/tcp* || break
    done
    echo "$tap_port"
}

tap_done() {
    echo "1..$tap_count"
    [ "$tap_failed" = 0 ]
    exit
}
