#!/bin/sh
# Checks the functions of tests/lib/tap.sh for the states of processes, and that a shell test fails
# on a sanitizer report of a process whose output it does not check:
# tap_self.sh <the C compiler and its options>
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

# ps may print nothing for a process that runs: here it never prints anything.
ps() { :; }
mkdir "$tap_tmp/a) b"
cp "$(command -v sleep)" "$tap_tmp/a) b/c) Z d" # the name is in the line with the state
# The parent is a sleep, too, which does not wait for it: so it becomes a zombie.
sh -c '"$0" 1000 & echo $! >"$1.new" && mv "$1.new" "$1"; exec sleep 1000' \
    "$tap_tmp/a) b/c) Z d" "$tap_tmp/pid" &
parent=$!
tap_run "the process has started" tap_until [ -s "$tap_tmp/pid" ]
process=$(cat "$tap_tmp/pid")
is_in() { [ "$(tap_state "$process")" = "$1" ]; }
tap_run "a sleeping process has the state S" tap_until is_in S
tap_run "it is alive" tap_alive "$process"
kill -STOP "$process"
tap_run "a stopped process has the state T" tap_until is_in T
tap_run "it is alive" tap_alive "$process"
kill -KILL "$process"
tap_run "a killed process without wait is a zombie" tap_until is_in Z
tap_run_fails "it is not alive" 1 tap_alive "$process"
kill -KILL $parent
wait $parent 2>/dev/null
tap_is "a process that does not exist has no state" "$(tap_state $parent)" ""
tap_run_fails "it is not alive" 1 tap_alive $parent
tap_run_fails "an empty pid is not alive" 1 tap_alive ""
unset -f ps

printf 'int main(int argc, char **argv) { int a[2] = {0, 1}; return argv[0] ? a[argc * 2] : 0; }\n' \
    >"$tap_tmp/bad.c"
bad=$tap_tmp/bad
if ! "$@" -g -fsanitize=address,undefined -fno-sanitize-recover=all -o "$bad" "$tap_tmp/bad.c" 2>"$tap_tmp/cc.out"; then
    tap_skip "sanitizer reports" "no sanitizers here: $(head -n 1 "$tap_tmp/cc.out")"
    tap_done
fi
printf 'int main(void) { return 0; }\n' >"$tap_tmp/good.c"
"$@" -g -fsanitize=address,undefined -o "$tap_tmp/good" "$tap_tmp/good.c"

# inner <case> <wanted exit status> <regular expression>: a separate test, from standard input
inner() {
    { echo '. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"'; echo "bad=$bad good=$tap_tmp/good"; cat; } >"$tap_tmp/inner.sh"
    got=0
    WEFT_BUILD_NAME=asan sh "$tap_tmp/inner.sh" >"$tap_tmp/inner.out" 2>&1 || got=$?
    tap_is "$1" "$got" "$2"
    tap_like "$1: its output" "$(cat "$tap_tmp/inner.out")" "$3"
}

inner "no finding" 0 '^1\.\.1$' <<'END'
"$good" >/dev/null 2>&1 &
wait $!
tap_pass "all is well"
tap_done
END
inner "a finding in a background process whose output is discarded" 1 '^#   .*\(Sanitizer\|runtime error\)' <<'END'
"$bad" >/dev/null 2>&1 &
wait $!
tap_pass "all is well"
tap_done
END
tap_like "it is reported as a failed case" "$(cat "$tap_tmp/inner.out")" '^not ok 2 - '
tap_like "the plan counts that case" "$(cat "$tap_tmp/inner.out")" '^1\.\.2$'
inner "a finding in a process that tap_at_exit ends" 1 '^not ok 2 - ' <<'END'
mkfifo "$tap_tmp/wait"
{ read -r word <"$tap_tmp/wait"; "$bad"; } >/dev/null 2>&1 &
tap_at_exit 'echo go >"$tap_tmp/wait"; wait'
tap_pass "all is well"
tap_done
END
inner "a finding in a process without the test's environment, whose output is a file" 1 '^not ok 2 - ' <<'END'
env -i "$bad" >"$tap_tmp/out" 2>&1 &
wait $!
tap_pass "all is well"
tap_done
END
inner "a finding in a test that ends before tap_done" 1 '^#   .*\(Sanitizer\|runtime error\)' <<'END'
"$bad" >/dev/null 2>&1
exit 0
END
inner "a test that receives SIGTERM runs tap_at_exit" 1 '^its folder: /' <<'END'
tap_at_exit 'echo "its folder: $(ls -d "$tap_tmp")"'
kill -TERM $$
tap_pass "it continues"
tap_done
END
folder=$(sed -n 's/^its folder: //p' "$tap_tmp/inner.out")
tap_is "it removes its directory" "$(ls -d "$folder" 2>/dev/null)" ""
tap_done
