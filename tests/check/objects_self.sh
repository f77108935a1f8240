#!/bin/sh
# Checks that objects.sh can fail: a valid small tree, then one broken rule at a time.
here=$(dirname "$0")
# shellcheck source=tests/lib/tap.sh
. "$here/../lib/tap.sh"

tree=$tap_tmp/tree

good_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/src/core" "$tree/tests/unit" "$tree/tests/fuzz"
    printf 'p->ack.pending = 0;\nif (p->conn.idle == idle) {\nep->credit.dirty = true;\n' \
        >"$tree/src/core/ack.c"
    printf 'if (p->rx.live == 0) {\nconst struct ack *a = &p->ack;\ntx_msg_polled(&p->tx.msgs[slot]);\n' \
        >"$tree/src/core/rx.c"
    printf 'p->rx.live |= bit;\nvoid f(struct rx_msg *m)\n{\n    m->state = RX_OPEN;\n}\n' \
        >"$tree/src/core/rx_msg.c"
    printf 'void f(const struct rx_msg *m, struct ack *a)\n{\n    a->low = m->seq;\n    memcpy(m->memory, d, 8);\n    if (m->seq == a->low) {\n    }\n}\n' \
        >"$tree/src/core/verify.c"
    echo '    .conn.hello_ns = WEFT_NEVER,' >"$tree/src/core/peers.c"
    echo 'return &ep->peers[peer];' >"$tree/tests/unit/core_inspect.h"
    echo 'struct peer *p = inspect_peer(ep, 0);' >"$tree/tests/unit/test_core.c"
}

# must_fail <name> <file> <line to add to it> <expected message>
must_fail() {
    good_tree
    printf '%b\n' "$3" >>"$tree/$2"
    seen=$("$here/objects.sh" "$tree")
    status=$?
    if [ $status != 0 ] && printf '%s\n' "$seen" | grep -q "$2:[0-9]*:.*$4"; then
        tap_pass "$1"
    else
        tap_fail "$1" "exit $status
$seen"
    fi
}

good_tree
tap_run "a valid tree passes" "$here/objects.sh" "$tree"

must_fail "a field of another object" src/core/rx.c  'p->conn.heard_ns = now_ns;'      'conn is not written'
must_fail "bits of another object"   src/core/ack.c 'p->rx.need_done |= p->rx.closed;' 'rx is not written'
must_fail "a count of another object" src/core/rx.c  'p->recovery.pto_count++;'         'recovery is not written'
must_fail "a write on the next line"     src/core/rx.c  'p->pacer.until_ns\n = WEFT_NEVER;' 'pacer is not written'
must_fail "an element of its array"    src/core/rx.c  'p->ack.window[b] = 0;'            'ack is not written'
must_fail "a peer of the table"          src/core/rx.c  'ep->peers[i].tx.held &= ~bit;'    'tx is not written'
must_fail "another name for the peer"    src/core/rx.c  'oldest->conn.idle = true;'        'conn is not written'
must_fail "a field of a field"           src/core/rx.c  'p->sec.hello.clock = now;'        'sec is not written'
must_fail "another name for the object"  src/core/rx.c  '    struct ack *a = &p->ack;'     'ack is not written'
must_fail "a pointer into the object" src/core/rx.c  'struct weft_wire_hello *h = &p->sec.hello;' 'sec is not written'
must_fail "a copy into it"                       src/core/rx.c  'memcpy(p->sec.hello.cookie, cookie, 16);' 'sec is not written'
must_fail "memset of it"                   src/core/rx.c  'memset(&p->path, 0, sizeof(p->path));' 'path is not written'
must_fail "an assignment to it"             src/core/rx.c  'p->pacer = (struct pacer){0};'    'pacer is not written'
must_fail "a message's field"            src/core/tx.c 'void f(struct tx_msg *m)\n{\n    m->in_flight--;\n}' 'tx_msg is not written'
must_fail "another name for a message"   src/core/tx.c '    struct rx_msg *oldest = &p->rx.msgs[0];\n    oldest->seq = 1;' 'rx_msg is not written'
must_fail "a message on the next line"   src/core/tx.c '    struct tx_msg *m = f();\n    m->acked_count\n        = 1;' 'tx_msg is not written'
must_fail "a message of the table"         src/core/tx.c 'p->tx.msgs[slot].unpolled = false;' 'tx_msg is not written'
must_fail "a whole message"              src/core/tx.c '    struct rx_msg *m = f();\n    *m = (struct rx_msg){0};' 'rx_msg is not written'
must_fail "a message's mask"             src/core/tx.c '    struct tx_msg *m = f();\n    weft_bits_set(m->lost, chunk);' 'tx_msg is not written'
must_fail "a copy into a message"        src/core/tx.c '    struct rx_msg *m = f();\n    memcpy(m->inline_mask, words, 8);' 'rx_msg is not written'
must_fail "a message's part by address"  src/core/tx.c '    struct tx_msg *m = f();\n    weft_perm_next(&m->perm);' 'tx_msg is not written'
must_fail "congestion control"           src/core/rx.c  'p->cc.marks = false;'             'cc is not written'
must_fail "a test that accesses the table" tests/unit/test_core.c 't->ep[1]->peers[0].ack.at_once = true;' 'peers'

good_tree
awk 'BEGIN { for (i = 0; i < 701; i++) print "//" }' >"$tree/src/core/long.c"
seen=$("$here/objects.sh" "$tree")
if [ $? != 0 ] && printf '%s\n' "$seen" | grep -q 'long.c:701: too long'; then
    tap_pass "a file is too long"
else
    tap_fail "a file is too long" "$seen"
fi

tap_done
