#!/bin/sh
# Checks that tools/count-tests detects every way in which a test program can fail.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
count=$WEFT_SOURCE_ROOT/tools/count-tests

# counts <case> <meson's result> <return code> <TAP, \n for newlines> <wanted "passed failed skipped">
counts() {
    printf '{"name": "weft:unit / x", "result": "%s", "returncode": %s, "stdout": "%s"}\n' \
        "$2" "$3" "$4" >"$tap_tmp/log.json"
    tap_is "$1" "$("$count" "$tap_tmp/log.json" | tail -n 1)" "total $5"
}

counts "all pass"                    OK    0   '1..2\nok 1 - a\nok 2 - b\n'           "2 0 0"
counts "plan at the end"             OK    0   'ok 1 - a\nok 2 - b\n1..2\n'           "2 0 0"
counts "one fails"                   ERROR 1   '1..2\nok 1 - a\nnot ok 2 - b\n'       "1 1 0"
counts "a failing TODO"              OK    0   '1..1\nnot ok 1 - a # TODO later\n'    "0 1 0"
counts "one skipped"                 OK    0   '1..2\nok 1 - a\nok 2 - b # SKIP c\n'  "1 0 1"
counts "all skipped"                 SKIP  0   '1..1\nok 1 - a # SKIP c\n'            "0 0 1"
counts "the program skips itself"    SKIP  0   '1..0 # SKIP no root\n'                "0 0 1"
counts "exit 77"                     SKIP  77  'no root\n'                            "0 0 1"
counts "exit status alone, good"     OK    0   ''                                     "1 0 0"
counts "exit status alone, bad"      FAIL  1   'oh\n'                                 "0 1 0"
counts "crash after a pass"          ERROR -11 '1..2\nok 1 - a\n'                     "1 1 0"
counts "crash seen through a shell"  ERROR 139 '1..1\nok 1 - a\n'                     "1 1 0"
counts "crash after the last case"   ERROR -6  '1..1\nok 1 - a\n'                     "1 1 0"
counts "timeout"                     TIMEOUT -15 '1..2\nok 1 - a\n'                   "1 1 0"
counts "fewer cases than planned"    ERROR 0   '1..2\nok 1 - a\n'                     "1 1 0"
counts "no plan (the script died)"   OK    0   'ok 1 - a\n'                           "1 1 0"
counts "two plans"                   ERROR 0   '1..1\nok 1 - a\n1..1\nok 1 - a\n'     "2 1 0"
counts "pass, but a bad exit status" ERROR 1   '1..1\nok 1 - a\n'                     "1 1 0"
counts "a silent program"            SKIP  0   ''                                     "0 1 0"
counts "bail out"                    SKIP  0   'Bail out! no memory\n'                "0 1 0"

# The sum over several programs, and the surrounding text.
{
    printf '{"name": "weft:unit / x", "result": "ERROR", "returncode": 1, "stdout": "%s"}\n' \
        '1..1\nnot ok 1 - a\n# 1 != 2\n'
    printf '{"name": "weft:io / y", "result": "OK", "returncode": 0, "stdout": "%s"}\n' \
        '1..2\nok 1 - b\nok 2 - c # SKIP no data\n'
} >"$tap_tmp/log.json"
seen=$("$count" "$tap_tmp/log.json")
tap_is   "two programs"          "$(echo "$seen" | tail -n 1)" "total 1 1 1"
tap_like "names what failed"     "$seen" '^FAILED  x'
tap_like "prints its output"     "$seen" '1 != 2'
tap_like "names what is skipped" "$seen" '^SKIPPED y: c: no data'
tap_done
