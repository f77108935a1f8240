#!/bin/sh
# Checks that tools/run-again reruns exactly the eligible programs, once (lab tests twice), and accepts no other
# result.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
again=$WEFT_SOURCE_ROOT/tools/run-again
count=$WEFT_SOURCE_ROOT/tools/count-tests

# A fake meson that records its arguments and replies with the next prepared log.
mkdir -p "$tap_tmp/bin" "$tap_tmp/build/meson-logs"
cat >"$tap_tmp/bin/meson" <<END
#!/bin/sh
for name; do :; done
echo "\$name" >>"$tap_tmp/rerun"
cp "$tap_tmp/next_log" "$tap_tmp/build/meson-logs/testlog.json"
END
chmod +x "$tap_tmp/bin/meson"
PATH=$tap_tmp/bin:$PATH
export AGAIN_PATIENCE=0

# entry <suite> <name> <result> <return code> <output>
entry() {
    printf '{"name": "weft:%s / %s", "result": "%s", "returncode": %s, "stdout": "%s"}\n' "$@"
}
bad='1..1\nnot ok 1 - a\n'
good='1..1\nok 1 - a\n'

# after <case> <wanted total> <expected reruns>: the result of run-again on $tap_tmp/first
after() {
    : >"$tap_tmp/rerun"
    "$again" "$tap_tmp/build" "$tap_tmp/first" >"$tap_tmp/log" 2>"$tap_tmp/err"
    tap_is "$1" "$("$count" "$tap_tmp/log" | tail -n 1) $(tr '\n' ' ' <"$tap_tmp/rerun")" \
        "total $2 $3"
}

entry cli cli_x OK 0 "$good" >"$tap_tmp/next_log"
{ entry cli cli_x ERROR 1 "$bad"; entry unit test_y OK 0 "$good"; } >"$tap_tmp/first"
after "a program that passes alone counts as passed" "2 0 0" "cli_x "
tap_like "it is reported" "$(cat "$tap_tmp/err")" 'AGAIN   cli_x'
tap_like "with its first output" "$(cat "$tap_tmp/err")" 'not ok 1 - a'

entry unit test_x ERROR 1 "$bad" >"$tap_tmp/first"
after "a program of a deterministic suite is not rerun" "0 1 0" ""
entry cli cli_x ERROR -11 "$good" >"$tap_tmp/first"
after "a program that crashed is not rerun" "1 1 0" ""
entry io test_x ERROR 1 '1..1\nnot ok 1 - a\n# WARNING: ThreadSanitizer: data race\n' >"$tap_tmp/first"
after "a program with a sanitizer report is not rerun" "0 1 0" ""
entry cli cli_x TIMEOUT -15 "$good" >"$tap_tmp/first"
after "a program that timed out is rerun" "1 0 0" "cli_x "
for n in 1 2 3 4 5 6 7 8 9; do entry cli "cli_$n" ERROR 1 "$bad"; done >"$tap_tmp/first"
after "nine failed programs are too many to rerun" "0 9 0" ""

entry cli cli_x ERROR 1 "$bad" >"$tap_tmp/next_log"
entry cli cli_x ERROR 1 "$bad" >"$tap_tmp/first"
after "a program that fails twice counts as failed" "0 1 0" "cli_x "
tap_is "it is not reported as rerun with success" "$(cat "$tap_tmp/err")" ""
: >"$tap_tmp/next_log"
after "a program whose rerun has no result counts as failed" "0 1 0" "cli_x "
entry lab lab_x ERROR 1 "$bad" >"$tap_tmp/next_log"
entry lab lab_x ERROR 1 "$bad" >"$tap_tmp/first"
after "a lab test is rerun twice" "0 1 0" "lab_x lab_x "
entry lab lab_x OK 0 "$good" >"$tap_tmp/next_log"
after "a lab test that passes the first rerun has no second one" "1 0 0" "lab_x "
AGAIN_PATIENCE=3 after "the wait for an idle machine is limited" "1 0 0" "lab_x "
entry lab lab_x ERROR -11 "$bad" >"$tap_tmp/next_log"
after "a lab test that crashes in the first rerun has no second one" "0 1 0" "lab_x "

# run-tests with this meson: its first failure is accepted only if the reruns that passed explain
# it.
mkdir -p "$tap_tmp/tree/build/meson-logs"
cp -r "$WEFT_SOURCE_ROOT/tools" "$tap_tmp/tree/"
for tool in build venv; do # venv would download PyTorch
    printf '#!/bin/sh\n' >"$tap_tmp/tree/tools/$tool"
done
cat >"$tap_tmp/bin/meson" <<END
#!/bin/sh
cat "$tap_tmp/tree/next" >"$tap_tmp/tree/build/meson-logs/testlog.json"
cp "$tap_tmp/next_log" "$tap_tmp/tree/next"
exit 1
END
# run_tests <case> <expected last line>
run_tests() {
    tap_is "$1" "$("$tap_tmp/tree/tools/run-tests" release 2>&1 | tail -n 1)" "$2"
}
entry cli cli_x OK 0 "$good" >"$tap_tmp/next_log"
{ entry cli cli_x ERROR 1 "$bad"; entry unit test_y OK 0 "$good"; } >"$tap_tmp/tree/next"
run_tests "a failure whose rerun passes does not fail run-tests" "2 passed, 0 failed"
entry unit test_y OK 0 "$good" >"$tap_tmp/tree/next"
run_tests "a meson that fails without a failed program fails run-tests" "1 passed, 1 failed"
tap_done
