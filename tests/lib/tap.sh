# TAP for tests written in shell. Usage:
#
#   . "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
#   tap_run  "help names the verbs" "$WEFT_BIN" help          # passes when the command exits 0
#   tap_is   "version" "$("$WEFT_BIN" --version)" "weft 0.2.0"
#   tap_like "report has an AUC" "$(cat report.json)" '"test_auc"'   # a basic regular expression
#   tap_until grep -q ready server.out
#   tap_include "its own tests" python3 tests.py
#   tap_skip "train on a9a" "no data: set WEFT_DATA_DIR"
#   tap_done                                                   # the plan; always the last line
#
# $tap_tmp is a fresh folder, removed at exit. A script that dies before tap_done has no plan, and
# both meson and tools/run-tests count that as a failure.
#
# Sanitizer reports of any process of the test are printed at the end and fail the test: also of
# background processes, and wherever their output goes. For processes to end and other cleanup
# use tap_at_exit 'kill $server; wait' instead of a trap of EXIT.

tap_count=0
tap_failed=0
tap_last=
tap_tmp=$(mktemp -d)
trap 'tap_exit' EXIT
trap 'exit 1' INT TERM HUP

tap_sanitized=
case ${WEFT_BUILD_NAME:-} in
asan | tsan)
    tap_sanitized=1
    mkdir "$tap_tmp/.found" # hidden from a test's own *
    # gcc's UBSan always writes to standard error; ASan reports the abort that follows.
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_abort=1:log_path=$tap_tmp/.found/report"
    export UBSAN_OPTIONS="${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}abort_on_error=1:log_path=$tap_tmp/.found/report"
    export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}log_path=$tap_tmp/.found/report"
    ;;
esac

# tap_at_exit <commands>: evaluated once, by tap_done, or when the script ends before; $tap_tmp
# still exists. A second call replaces the first.
tap_at_exit() { tap_last=$1; }

tap_end_all() {
    tap_words=$tap_last
    tap_last=
    eval "$tap_words"
}

# Prints and removes the sanitizer reports: the report files, and reports in other files of the test,
# from processes that do not have this environment.
tap_findings() {
    [ -n "$tap_sanitized" ] && [ -d "$tap_tmp/.found" ] || return 0
    for tap_report in "$tap_tmp"/.found/*; do
        [ -s "$tap_report" ] && cat "$tap_report"
        rm -f "$tap_report"
    done
    for tap_report in $(grep -rlaE 'ERROR: [A-Za-z]*Sanitizer|WARNING: ThreadSanitizer|: runtime error: ' "$tap_tmp" 2>/dev/null); do
        sed -n '/Sanitizer/,$p; /: runtime error: /,$p' "$tap_report" | head -n 60
        rm -f "$tap_report"
    done
}

tap_exit() {
    tap_status=$?
    trap - EXIT
    tap_end_all
    tap_seen=$(tap_findings)
    rm -rf "$tap_tmp"
    if [ -n "$tap_seen" ]; then
        printf '%s\n' "$tap_seen" | sed 's/^/#   /'
        tap_status=1
    fi
    exit $tap_status
}

tap_pass() {
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1"
}

# tap_include <name> <command ...>: runs a program that prints TAP; its tests are renumbered.
tap_include() {
    tap_name=$1
    shift
    "$@" >"$tap_tmp/.tap" 2>"$tap_tmp/.errors"
    tap_status=$?
    tap_is "$tap_name has a plan" "$(grep -c '^1\.\.' "$tap_tmp/.tap")" 1
    while IFS= read -r tap_line; do
        case $tap_line in
        "ok "*) tap_pass "${tap_line#* - }" ;;
        "not ok "*) tap_fail "${tap_line#* - }" ;;
        "#"*) echo "$tap_line" ;;
        esac
    done <"$tap_tmp/.tap"
    tap_is "$tap_name exits with 0" "$tap_status" 0
    [ "$tap_status" = 0 ] || sed 's/^/#   /' "$tap_tmp/.errors"
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

# The output replaces run.out when the command has ended, because the command may read the previous
# run.out, and jq -e accepts an empty file. PATH may be empty, hence `command -p`.
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
        tap_fail "$tap_name" "exit $tap_got, expected $tap_want, from: $*
$(cat "$tap_tmp/run.out")"
    fi
}

# tap_is <name> <seen> <expected>
tap_is() {
    if [ "$2" = "$3" ]; then
        tap_pass "$1"
    else
        tap_fail "$1" "seen:     $2
expected: $3"
    fi
}

# tap_like <name> <seen> <basic regular expression>
tap_like() {
    if printf '%s\n' "$2" | grep -q -e "$3"; then
        tap_pass "$1"
    else
        tap_fail "$1" "seen:     $2
expected: a line matching $3"
    fi
}

# tap_until <command...>: waits until it succeeds; false after two minutes.
tap_until() {
    tap_tries=2400
    until "$@" >/dev/null 2>&1; do
        tap_tries=$((tap_tries - 1))
        [ $tap_tries -gt 0 ] || return 1
        sleep 0.05
    done
}

# tap_lines <n> <regular expression> <file>: true if the file has at least n such lines
tap_lines() {
    [ "$(grep -c -e "$2" "$3" 2>/dev/null)" -ge "$1" ]
}

# tap_patient <name> <exit status> <basic regular expression> <command...>: passes when the command,
# which gets a number of seconds as its last argument, ends with this status and output. Retried
# with more seconds in case the machine was suspended.
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
    tap_fail "$tap_name" "exit $tap_got, expected $tap_want and a line matching $tap_regex, from: $*
$(cat "$tap_tmp/run.out")"
}

# tap_port: prints a free port below 32768, where the kernel's ephemeral ports begin.
tap_port() {
    for tap_draw in $(od -An -N40 -tu2 /dev/urandom); do
        tap_port=$((10000 + tap_draw % 20000))
        grep -q "$(printf ':%04X ' $tap_port)" /proc/net/udp* /proc/net/tcp* || break
    done
    echo "$tap_port"
}

# tap_state <pid>: prints the state of a process as in ps: R, S, D, T, Z, ...; nothing if it does not
# exist. Read from /proc, because ps sometimes prints nothing for a process that runs.
tap_state() {
    [ -n "$1" ] && read -r tap_stat <"/proc/$1/stat" || return 0
    tap_stat=${tap_stat##*) }
    echo "${tap_stat%% *}"
} 2>/dev/null

# tap_alive <pid>: true if the process runs, or is stopped; false for a zombie.
tap_alive() {
    case $(tap_state "$1") in
    '' | Z | X) return 1 ;;
    esac
}

tap_done() {
    tap_end_all
    tap_seen=$(tap_findings)
    [ -z "$tap_seen" ] || tap_fail "no process has a sanitizer report" "$tap_seen"
    echo "1..$tap_count"
    [ "$tap_failed" = 0 ]
    exit
}

# tap_python [ARGUMENT ...]: run the program on standard input with the Python package and the library of
# this build. tap_has_python: whether an interpreter can do so. It cannot in sanitizer builds, because the
# sanitizer's library would have to be loaded before the interpreter.
tap_python_found=
tap_has_python() {
    [ "$WEFT_BUILD_NAME" = release ] || return 1
    for tap_candidate in python3 /usr/bin/python3; do
        if "$tap_candidate" -c 'import cffi, numpy' 2>/dev/null; then
            tap_python_found=$tap_candidate
            return 0
        fi
    done
    return 1
}
tap_python() {
    PYTHONPATH=$WEFT_SOURCE_ROOT/python PYTHONDONTWRITEBYTECODE=1 \
        WEFT_LIBRARY=$WEFT_BUILD_ROOT/libweft.so.0 "$tap_python_found" - "$@"
}
