#!/bin/sh
# Checks that each part of a peer in core is encapsulated: only the files that own an object, and the
# functions of its header, write its fields. Usage: objects.sh [root of the tree]
#
# A write is an assignment to a field, at any depth and with any name of the peer variable; a
# non-const pointer to the object or into it; a copy to it or clearing it with memcpy and similar
# functions.
#
# The same applies to messages: struct tx_msg is written by tx_msg.c, struct rx_msg by rx_msg.c, and
# both by the functions of their headers. The check finds writes by the names of non-const pointers
# in the function that declares them. Taking the address of a field counts as a write, and so does
# setting bits of a mask.
#
# Also checked: only tests/unit/core_inspect.h among the tests accesses the table of peers, and no
# file of core is longer than 700 lines. objects_self.sh shows that this check can fail.
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
    tx) echo "tx_msg" ;;
    rx) echo "rx_msg" ;;
    ack) echo "ack" ;;
    credit) echo "credit credit_want credit_far" ;;
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
                gsub(/ep->credit/, "", seen) # of the endpoint: its credit for all peers
                gsub(/(->|\.)(tx|rx)\.msgs\[[^]]*\]/, "", seen)
            }
            seen ~ ("[a-z0-9_\\])]" member "$") { held = text; next }
            seen ~ assigned || seen ~ whole || seen ~ alias || seen ~ copied {
                printf "%s:%d: %s is not written here: %s\n", file, NR, object, text
            }' "$file"
    done
}

# Writes to a message, struct $1, outside the file $1.c. A line may break before the operator.
message_violations() {
    find src/core -name '*.c' ! -name "$1.c" | sort | while IFS= read -r file; do
        awk -v file="$file" -v message="$1" -v set="${1%_msg}" '
            BEGIN {
                field = "->[a-z_]+(\\[[^]]*\\])?"
                changes = " *(=[^=]|=$|[-+|&^]=|<<=|>>=|\\+\\+|--)"
                any = "(^|[^a-z_])" set "\\.msgs\\[[^]]*\\]\\.[a-z_]+"
            }
            function declared(text,   at, name, before) {
                while (match(text, "struct " message " \\*[a-z_]+")) {
                    at = RSTART + length("struct " message " *")
                    name = substr(text, at, RSTART + RLENGTH - at)
                    before = substr(text, 1, RSTART - 1)
                    text = substr(text, RSTART + RLENGTH)
                    if (before !~ /const $/ && substr(text, 1, 1) != "(") {
                        names[name] = 1
                    }
                }
            }
            function writes(text, name,   start) {
                start = "(^|[^a-z_>.])" name
                gsub("struct " message " \\*", "", text)
                gsub(name "->memory", "memory", text) # the application owns this memory
                return text ~ (start field changes) || text ~ ("(\\+\\+|--|&)" name "->") ||
                       text ~ ("(^|[ (;])\\*" name " = ") ||
                       text ~ ("mem(set|cpy|move)\\(&?" name "(->|,)") ||
                       text ~ ("weft_bits_(set|clear|fill)\\(" name "->")
            }
            /^}/ { split("", names) }
            {
                text = held $0
                held = ""
                declared(text)
                found = text ~ (any changes)
                for (name in names) {
                    found = found || writes(text, name)
                    if (text ~ ("(^|[^a-z_>.])" name field "$")) {
                        held = text
                    }
                }
                if (text ~ (any "$")) {
                    held = text
                }
                if (found) {
                    printf "%s:%d: %s is not written here: %s\n", file, NR, message, text
                }
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
for message in tx_msg rx_msg; do
    report "a message, struct $message, is written by: $message" "$(message_violations "$message")"
done
report "tests access a peer only through core_inspect.h" "$(grep -nE '(^|[^a-z_])ep(\[[^]]*\])?->peers\[' \
    tests/unit/*.c tests/unit/*.h tests/fuzz/*.c 2>/dev/null | grep -v '^tests/unit/core_inspect.h:')"
report "no file of core is longer than 700 lines" "$(wc -l src/core/*.[ch] |
    awk '$2 != "total" && $1 > 700 { print $2 ":" $1 ": too long" }')"

echo "1..$count"
exit $failed
