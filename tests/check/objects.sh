#!/bin/sh
# Proves that a peer of core is made of objects: a field of one is written by the files that own the
# object and by the verbs of its header, and by nobody else. Usage: objects.sh [root of the tree]
#
# A write is an assignment to a field, however deep and whatever the peer is called; a pointer to
# the object or into it that is not const; a copy or a clearing by memcpy and the like. Not seen are
# the fields of one message (struct tx_msg, struct rx_msg): files that handle messages write them.
#
# Also checked: no test but tests/unit/core_inspect.h reaches into the table of peers, and no file
# of core is longer than 700 lines. objects_self.sh proves that this check can fail.
set -u
LC_ALL=C
export LC_ALL
root=${1:-$(dirname "$0")/../..}
cd "$root" || exit 2

# The files that may write the fields of object $1; the headers of src/core may write any.
owners() {
    case $1 in
    conn) echo "handshake life peers" ;;
    sec) echo "secure" ;;
    allowed) echo "tx" ;;
    pacer) echo "pacer" ;;
    recovery) echo "loss tail" ;;
    path) echo "path" ;;
    tx) echo "tx_msg pace critical" ;;
    rx) echo "rx" ;;
    ack) echo "ack" ;;
    credit) echo "credit credit_want" ;;
    cc) echo "cc cc_dctcp cc_delay cc_loss cc_reno" ;;
    esac
}

# Writes to object $1 outside the files $2. A line may break before the operator.
violations() {
    find src/core -name '*.c' | sort | while IFS= read -r file; do
        case " $2 " in *" $(basename "$file" .c) "*) continue ;; esac
        awk -v file="$file" -v object="$1" '
            BEGIN {
                member = "(->|\\.)" object "(\\.[a-z_]+(\\[[^]]*\\])?)+"
                changes = " *(=[^=]|=$|[-+|&^]=|<<=|>>=|\\+\\+|--)"
                assigned = "[a-z0-9_\\])]" member changes
                whole = "(^|[^a-z_])(p|old|peer|peers\\[[^]]*\\])(->|\\.)" object " = "
                alias = "^ *struct [a-z_]+ \\*[a-z_]+ = &[a-z_]+(->|\\.)" object "[.;]"
                copied = "mem(set|cpy|move)\\(&?[a-z_]+(->|\\.)" object "[.,]"
            }
            {
                text = held $0
                held = ""
                seen = text
                gsub(/ep->credit/, "", seen) # of the endpoint: what it grants to all its peers
                gsub(/(->|\.)(tx|rx)\.msgs\[[^]]*\]/, "", seen)
            }
            seen ~ ("[a-z0-9_\\])]" member "$") { held = text; next }
            seen ~ assigned || seen ~ whole || seen ~ alias || seen ~ copied {
                printf "%s:%d: %s is not written here: %s\n", file, NR, object, text
            }' "$file"
    done
}

count=0
failed=0
report() { # report <name> <violations>
    count=$((count + 1))
    if [ -z "$2" ]; then
        echo "ok $count - $1"
    else
        failed=1
        echo "not ok $count - $1"
        printf '%s\n' "$2" | sed 's/^/#   /'
    fi
}

for object in conn sec allowed pacer recovery path tx rx ack credit cc; do
    files=$(owners "$object")
    report "$object is written by: $files" "$(violations "$object" "$files")"
done
report "tests ask core_inspect.h for a peer" "$(grep -nE '(^|[^a-z_])ep(\[[^]]*\])?->peers\[' \
    tests/unit/*.c tests/unit/*.h tests/fuzz/*.c 2>/dev/null | grep -v '^tests/unit/core_inspect.h:')"
report "no file of core is longer than 700 lines" "$(wc -l src/core/*.[ch] |
    awk '$2 != "total" && $1 > 700 { print $2 ":" $1 ": too long" }')"

echo "1..$count"
exit $failed
