#!/bin/sh
# Proves that a peer of core is made of objects: a field of one is written by the files that own the
# object and by the verbs of its header, and by nobody else. Usage: objects.sh [root of the tree]
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
    esac
}

# Writes to object $1 outside the files $2. A line may break before the operator.
violations() {
    find src/core -name '*.c' | sort | while IFS= read -r file; do
        case " $2 " in *" $(basename "$file" .c) "*) continue ;; esac
        awk -v file="$file" -v object="$1" '
            { text = held $0; held = "" }
            text ~ ("[a-z_)\\]](->|\\.)" object "\\.[a-z_]+(\\[[^]]*\\])?$") { held = text; next }
            text ~ ("(^|[^a-z_])(p|old|peer|peers\\[[^]]*\\])(->|\\.)" object \
                    "\\.[a-z_]+(\\[[^]]*\\])? *(=[^=]|=$|[-+|&^]=|<<=|>>=|\\+\\+|--)") {
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

for object in conn sec allowed pacer recovery path tx rx ack credit; do
    files=$(owners "$object")
    report "$object is written by: $files" "$(violations "$object" "$files")"
done
report "tests ask core_inspect.h for a peer" "$(grep -nE '(^|[^a-z_])ep(\[[^]]*\])?->peers\[' \
    tests/unit/*.c tests/unit/*.h tests/fuzz/*.c 2>/dev/null | grep -v '^tests/unit/core_inspect.h:')"
report "no file of core is longer than 700 lines" "$(wc -l src/core/*.[ch] |
    awk '$2 != "total" && $1 > 700 { print $2 ":" $1 ": too long" }')"

echo "1..$count"
exit $failed
