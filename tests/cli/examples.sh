#!/bin/sh
# An installation: headers, library, weft.pc and manual pages. The two examples, built against it outside
# the tree in C and in C++, transfer vectors and report the missing elements.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

if [ "$WEFT_BUILD_NAME" != release ]; then
    # A sanitized library also needs its runtime in the program; other tests cover that build.
    tap_skip "the examples" "not in the $WEFT_BUILD_NAME build"
    tap_done
fi

tap_run "meson install with DESTDIR succeeds" env DESTDIR="$tap_tmp/root" \
    meson install -C "$WEFT_BUILD_ROOT" --no-rebuild --quiet
pc=$(find "$tap_tmp/root" -name weft.pc)
prefix=$tap_tmp/root$(sed -n 's/^prefix=//p' "$pc")
for file in include/weft/transport.h include/weft/status.h include/weft/export.h include/weft/version.h \
    include/weft/coll.h include/weft/fabric.h include/weft/ps.h include/weft/ps_lite.h bin/weft share/man/man1/weft.1 \
    share/man/man1/weft-train.1 share/man/man3/weft_transport.3 share/man/man3/weft_ps.3 \
    share/man/man3/weft_coll.3 share/man/man3/weft_fabric.3 share/doc/weft/examples/all_reduce.c \
    share/doc/weft/examples/fabric.c \
    share/doc/weft/examples/send.c share/doc/weft/examples/ps_train.c; do
    tap_run "$file is installed" test -s "$prefix/$file"
done
tap_is "exactly 8 headers are installed" "$(find "$prefix/include" -type f | wc -l)" 8

PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
config() {
    pkg-config --define-variable=prefix="$prefix" "$@" weft
}
tap_is "pkg-config has the version" "weft $(config --modversion)" "$("$WEFT_BIN" --version)"
libdir=$(config --variable=libdir)
tap_run "the library is installed with its soname" test -e "$libdir/libweft.so.0"
LD_LIBRARY_PATH=$libdir
export LD_LIBRARY_PATH

build() { # build <name> <compiler> <flags> <source> [libraries]
    # shellcheck disable=SC2046,SC2086 # the flags are split
    tap_run "$1 compiles without warnings" $2 -Wall -Wextra -Werror $3 $(config --cflags) "$4" $(config --libs) ${5:-} \
        -o "$tap_tmp/$1"
}
cd "$tap_tmp" || exit 1
examples=$prefix/share/doc/weft/examples
build recv "${CC:-cc}" "-std=c11 -Wpedantic" "$examples/recv.c"
build send "${CC:-cc}" "-std=c11 -Wpedantic" "$examples/send.c"
build all_reduce "${CC:-cc}" "-std=c11 -Wpedantic" "$examples/all_reduce.c"
build fabric "${CC:-cc}" "-std=c11 -Wpedantic" "$examples/fabric.c" -lm
if command -v g++ >/dev/null; then
    build send++ g++ "-std=c++20 -Wno-missing-field-initializers -x c++" "$examples/send.c"
    printf '#include <weft/transport.h>\n#include <weft/ps.h>\n#include <weft/coll.h>\n#include <weft/fabric.h>\n' >header.cc
    # shellcheck disable=SC2046
    tap_run "the headers compile as C++11" g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
        $(config --cflags) header.cc
else
    tap_skip "the headers compile as C++11" "no g++"
fi

tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key

# Four ranks that exchange addresses through files in a folder.
mkdir job
for rank in 1 2 3; do
    ./all_reduce "$rank" 4 job job.key >"rank$rank.out" 2>&1 &
done
tap_like "all_reduce at rank 0 has the mean" "$(./all_reduce 0 4 job job.key 2>&1)" '^rank 0: mean 1.5, '
wait
for rank in 1 2 3; do
    tap_like "all_reduce at rank $rank has the mean" "$(cat "rank$rank.out")" "^rank $rank: mean 1.5, "
done

# The server of examples/fabric.c, a scheduler, and two workers; the server ends when its standard input
# closes.
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY
"$WEFT_BIN" scheduler --port 0 >scheduler.out 2>scheduler.err &
scheduler=$!
tap_until grep -q '^scheduler: ' scheduler.out
address=$(sed -n 's/^scheduler: //p' scheduler.out)
mkfifo hold
./fabric server "$address" <hold >server.out 2>server.err &
server=$!
exec 9>hold
tap_at_exit 'kill $scheduler $server 2>/dev/null; wait'
tap_until grep -q '^server: ' server.out
servers=$(sed -n 's/^server: //p' server.out)
./fabric worker "$address" "$servers" 1 >worker1.out 2>&1 &
worker=$!
./fabric worker "$address" "$servers" 0 >worker0.out 2>&1
tap_is "one worker exits with 0" $? 0
wait "$worker"
tap_is "the other worker exits with 0" $? 0
exec 9>&-
wait "$server"
tap_is "the server exits with 0 at the end of its input" $? 0
cat worker0.out worker1.out >workers.out
tap_is "each worker pushed or dropped 41 updates" \
    "$(awk '{ print $3 + $5 }' workers.out | xargs)" "41 41"
tap_is "the server has committed every pushed update" \
    "$(awk '/^committed/ { print $2 + 0 }' server.out)" "$(awk '{ n += $3 } END { print n }' workers.out)"
tap_is "no committed update had a delay above the bound" "$(awk '/^committed/ { print $NF <= 1 }' server.out)" 1
tap_is "the error of both models is below 0.05" "$(awk '$NF < 0.05 { n++ } END { print n }' workers.out)" 2
kill "$scheduler"
wait "$scheduler"
unset WEFT_JOB_KEY

# transfer <sender>: sender and receiver on loopback; 5 % of the datagrams are dropped.
transfer() {
    rm -f recv.out
    ./recv 127.0.0.1 0 job.key 5 0.05 >recv.out 2>recv.err &
    receiver=$!
    tries=0
    until [ -s recv.out ] || [ "$tries" = 2400 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    status=0
    "./$1" 127.0.0.1 "$(sed -n 's/^port //p' recv.out)" job.key 5 >send.out 2>send.err || status=$?
    tap_is "$1 exits with 0" "$status $(cat send.err)" "0 "
    status=0
    wait "$receiver" || status=$?
    tap_is "recv exits with 0 with $1" "$status $(cat recv.err)" "0 "
    tap_is "five vectors arrive with at least 90 % of their elements" \
        "$(awk '/ of 100000 elements/ { n += $1 >= 90000 } END { print n }' recv.out)" 5
    tap_like "gaps are printed" "$(cat recv.out)" 'missing: [0-9]*\.\.[0-9]'
    # Element 0 is critical: it is never missing, so the mean of its ones is one.
    tap_like "the mean of the critical element is 1" "$(cat recv.out)" '^mean of element 0: 1$'
    # Both ends report the same gaps.
    tap_is "both ends count the same elements" \
        "$(awk '/go with/ { print 100000 - $1 }' send.out)" \
        "$(awk '/ of 100000/ { print $1 }' recv.out)"
}
transfer send
[ ! -x send++ ] || transfer send++

status=0
./send 127.0.0.1 0 job.key 1 2>send.err || status=$?
tap_is "port 0: exit status 1" "$status" 1
tap_like "port 0: the error names the port" "$(cat send.err)" '^send: connect: port 0 cannot be connected to'
# Without a peer: the reason and the next action, after the peer timeout of 5 s.
status=0
WEFT_PEER_TIMEOUT_S=5 ./send 127.0.0.1 "$(sed -n 's/^port //p' recv.out)" job.key 1 2>send.err ||
    status=$?
tap_is "no receiver: exit status 1" "$status" 1
tap_like "no receiver: the error names possible causes" "$(cat send.err)" '^send: the receiver: .*firewall'

# No key: the error explains how to create one.
status=0
./send 127.0.0.1 7700 none.key 1 2>send.err || status=$?
tap_is "no key: exit status 1" "$status" 1
tap_like "no key: the error names weft keygen" "$(cat send.err)" 'none\.key.*weft keygen'

# Another key: the receiver keeps waiting; the sender's error names the cause.
tap_run "keygen of another key succeeds" "$WEFT_BIN" keygen other.key
rm -f recv.out
./recv 127.0.0.1 0 job.key 1 >recv.out 2>recv.err &
receiver=$!
tries=0
until [ -s recv.out ] || [ "$tries" = 2400 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
status=0
WEFT_PEER_TIMEOUT_S=5 ./send 127.0.0.1 "$(sed -n 's/^port //p' recv.out)" other.key 1 2>send.err ||
    status=$?
tap_is "another key: exit status 1" "$status" 1
tap_like "another key: the error says so" "$(cat send.err)" 'reports another job key'
kill "$receiver"
wait "$receiver" 2>/dev/null

tap_done
