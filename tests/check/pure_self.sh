#!/bin/sh
# Checks that pure.sh can fail: small archives with one violation each. Usage: pure_self.sh <cc...>
here=$(dirname "$0")
# shellcheck source=tests/lib/tap.sh
. "$here/../lib/tap.sh"
cd "$tap_tmp" || exit 1
check=$OLDPWD/$here
case $here in /*) check=$here ;; esac
cc=${*:-cc}

# archive <name>: compiles stdin into lib<name>.a
archive() {
    rm -f "lib$1.a"
    # shellcheck disable=SC2086
    $cc -std=gnu2x -O2 -g -fPIC -x c -c - -o "$1.o" && ar cr "lib$1.a" "$1.o"
}

# must_pass <name> and must_fail <name> <expected message>; the source is on stdin.
must_pass() {
    archive layer
    tap_run "$1" "$check/pure.sh" "$check/pure.allow" liblayer.a
}

must_fail() {
    archive "${3:-layer}"
    seen=$("$check/pure.sh" "$check/pure.allow" "lib${3:-layer}.a")
    status=$?
    if [ $status != 0 ] && printf '%s\n' "$seen" | grep -q -e "$2"; then
        tap_pass "$1"
    else
        tap_fail "$1" "exit $status
$seen"
    fi
}

must_pass "memory functions and snprintf" <<'END'
#include <stdio.h>
#include <string.h>
void copy(char *to, const char *from, size_t bytes, int number);
void copy(char *to, const char *from, size_t bytes, int number)
{
    memcpy(to, from, bytes);
    snprintf(to, bytes, "%d", number);
}
END

must_pass "a constructor may allocate" <<'END'
#include <stdlib.h>
void *weft_thing_new(size_t bytes);
void *weft_thing_new(size_t bytes) { return calloc(1, bytes); }
void weft_thing_free(void *thing);
void weft_thing_free(void *thing) { free(thing); }
END

must_fail "allocation by a function other than a constructor" 'malloc, called by weft_thing_push' <<'END'
#include <stdlib.h>
void *weft_thing_push(size_t bytes);
void *weft_thing_push(size_t bytes) { return malloc(bytes); }
END

must_fail "allocation by a static function" 'malloc, called by helper' <<'END'
#include <stdlib.h>
static __attribute__((noinline)) void *helper(size_t bytes) { return malloc(bytes); }
char *weft_thing_push(size_t bytes);
char *weft_thing_push(size_t bytes) { return (char *)helper(bytes) + 1; }
END

must_fail "malloc in a table of functions" 'malloc, called by (data)' <<'END'
#include <stdlib.h>
void *(*const weft_allocators[1])(size_t) = {malloc};
void weft_nothing(void);
void weft_nothing(void) {}
END

must_fail "printing" 'puts\|printf' <<'END'
#include <stdio.h>
void say(int number);
void say(int number) { printf("%d\n", number); }
END

must_fail "a clock" 'clock_gettime, called by now' <<'END'
#include <time.h>
long now(void);
long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_nsec; }
END

must_fail "errno, which indicates a system call" '__errno_location' <<'END'
#include <errno.h>
int last(void);
int last(void) { return errno; }
END

case $($cc -dumpmachine) in
x86_64*) instruction=syscall ;;
aarch64*) instruction="svc 0" ;;
*) instruction= ;;
esac
if [ -n "$instruction" ]; then
    must_fail "a system call in assembler" 'instruction:' <<END
void raw(void);
void raw(void) { __asm__ volatile("$instruction"); }
END
else
    tap_skip "a system call in assembler" "instruction unknown for this processor"
fi

must_fail "an archive without functions" 'defines no function' <<'END'
extern const int nothing;
const int nothing = 1;
END

must_fail "a wall clock in the simulator" 'not in a simulator' weft_sim <<'END'
#include <time.h>
long now(void);
long now(void) { return time(NULL); }
END

must_fail "printing in node" 'a library does not print' weft_node <<'END'
#include <stdio.h>
void say(int number);
void say(int number) { fprintf(stderr, "%d\n", number); }
END

must_fail "printing in api" 'a library does not print' weft_api <<'END'
#include <stdio.h>
void say(void);
void say(void) { puts("here"); }
END
tap_done
