#!/bin/sh
# Checks that includes.sh can fail: a valid small tree, then one broken rule at a time.
here=$(dirname "$0")
# shellcheck source=tests/lib/tap.sh
. "$here/../lib/tap.sh"

tree=$tap_tmp/tree

# A tree that follows every rule.
good_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/include/weft"
    for folder in base wire core rpc coll ps sched agg ml io sim; do
        mkdir -p "$tree/src/$folder"
        echo '#include <stdint.h>' >"$tree/src/$folder/$folder.h"
    done
    echo '#include <stdint.h>' >"$tree/include/weft/weft.h"
    printf '#include "base/base.h"\n#include "wire/wire.h"\n#include <string.h>\n' \
        >"$tree/src/core/core.c"
    printf '#include "ps/ps.h"\n#include <sys/socket.h>\n#include <weft/weft.h>\n' \
        >"$tree/src/io/io.c"
    printf '#include "base/base.h"\n#include <pthread.h>\n' >"$tree/src/ml/ml.c"
    for driver in udp tcp; do
        mkdir -p "$tree/src/io/$driver"
        echo '#include "io/base.h"' >"$tree/src/io/$driver/$driver.h"
    done
    echo '#include <stdint.h>' >"$tree/src/io/base.h"
    printf '#include "io/tcp/tcp.h"\n#include "io/udp/udp.h"\n' >"$tree/src/io/driver.h"
}

# must_fail <name> <file> <line to add to it> <expected message>
must_fail() {
    good_tree
    mkdir -p "$(dirname "$tree/$2")"
    echo "$3" >>"$tree/$2"
    seen=$("$here/includes.sh" "$tree")
    status=$?
    if [ $status != 0 ] && printf '%s\n' "$seen" | grep -q "$2:[0-9]*:.*$4"; then
        tap_pass "$1"
    else
        tap_fail "$1" "exit $status
$seen"
    fi
}

good_tree
tap_run "a valid tree passes" "$here/includes.sh" "$tree"

must_fail "a layer includes a higher one"  src/wire/w.c    '#include "core/core.h"'   'wire must not include core'
must_fail "base includes wire"            src/base/b.h    '#include "wire/wire.h"'   'base must not include wire'
must_fail "a layer includes a driver"     src/core/c.c    '#include "io/io.h"'       'core must not include io'
must_fail "rpc includes coll"             src/rpc/r.c     '#include "coll/coll.h"'   'rpc must not include coll'
must_fail "a driver includes a driver"    src/sim/s.c     '#include "io/io.h"'       'sim must not include io'
must_fail "udp includes tcp"              src/io/udp/u.c  '#include "io/tcp/tcp.h"'   'io/udp must not include io/tcp'
must_fail "tcp includes udp"              src/io/tcp/t.c  '#include "io/udp/udp.h"'   'io/tcp must not include io/udp'
must_fail "udp includes tcp by a header"  src/io/base.h   '#include "io/tcp/tcp.h"'   'io/udp must not include io/tcp'
must_fail "ml includes more than base"    src/ml/m.c      '#include "core/core.h"'   'ml must not include core'
must_fail "sched includes more than base" src/sched/s.c   '#include "wire/wire.h"'   'sched must not include wire'
must_fail "unusual spaces are found"    src/wire/w.c    ' #  include  "core/core.h" // x' 'must not include'
must_fail "a relative include"            src/ps/p.c      '#include "../io/io.h"'    'not written as'
must_fail "a bare include"                src/ps/p.c      '#include "ps.h"'          'not written as'
must_fail "a header that does not exist"  src/ps/p.c      '#include "ps/no.h"'       'no such header'
must_fail "a clock in a layer"            src/core/c.c    '#include <time.h>'        'not a header for a layer'
must_fail "a socket in a layer"           src/ps/p.c      '#include <sys/socket.h>'  'not a header for a layer'
must_fail "stdio in the freestanding one" src/wire/weft_wire.h '#include <stdio.h>'  'compiled for BPF'
must_fail "string.h in agg's headers"     src/agg/a.h     '#include <string.h>'      'compiled for BPF'
must_fail "a macro as header name"        src/core/c.c    '#include HEADER'          'cannot be read'
must_fail "a public header includes an internal one"  include/weft/p.h '#include "base/base.h"'  'public header'

good_tree
echo '#include "io/driver.h"' >>"$tree/src/io/tcp/tcp.h"
tap_run_fails "tcp includes a header that includes udp" 1 "$here/includes.sh" "$tree"

good_tree
mkdir "$tree/src/odd"
echo >"$tree/src/odd/odd.c"
tap_run_fails "a directory that may_include does not know" 1 "$here/includes.sh" "$tree"
tap_done
