#!/bin/sh
# Checks the layers: which folder may include which. Usage: includes.sh [root of the tree]
#
#   base <- wire <- core <- {rpc, coll} <- ps     layers
#   member sees base, wire, core and rpc          a layer outside the chain above
#   sched sees base; agg sees base and wire       layers outside the chain above; ps sees agg, too
#   ml sees base                                  the reference trainer's reader and models
#   file sees base                                paths of files; drivers see it, too
#   io crypto ckpt obs job sim lab                drivers: see layers, never each other
#   node                                          a process of a job: connects layers and drivers
#   metrics                                       figures of io, core, ps and node over HTTP, through obs
#   api                                           the public face: connects node, layers and drivers; cli does, too
#   cli, tests, bench, lab, examples              may include anything; not checked here
#   include/weft                                  public: <weft/...> and standard headers only
#                                                 (ps_lite.h is C++: its standard headers, too)
#
# Also checked: project headers are written "folder/file.h" and exist; layers include no system
# header beyond the short list below; wire/weft_wire.h and the headers of agg stay freestanding (they
# are compiled for BPF).
# One TAP case per folder. includes_self.sh shows that this check can fail.
set -u
LC_ALL=C
export LC_ALL
root=${1:-$(dirname "$0")/../..}
cd "$root" || exit 2

layers="base wire core rpc member coll ps sched agg"

# The folders that folder $1 may include besides itself; "unknown" for a folder not in the list at the top.
may_include() {
    case $1 in
    base) echo "" ;;
    wire) echo "base" ;;
    core) echo "base wire" ;;
    rpc | coll) echo "base wire core" ;;
    member) echo "base wire core rpc" ;;
    ps) echo "base wire core rpc coll agg" ;;
    sched | ml | file) echo "base" ;;
    agg) echo "base wire" ;;
    io | crypto | ckpt | obs | job | sim | lab) echo "$layers file" ;;
    node) echo "$layers io crypto ckpt obs job" ;;
    metrics) echo "$layers io obs node" ;;
    api) echo "$layers io crypto job obs node metrics" ;;
    *) echo "unknown" ;;
    esac
}

# Headers of the C library that a layer may include. None of these headers declares a system call, a
# clock or a thread, except <stdio.h> and <stdlib.h>: pure.sh checks which of their functions are
# called. <assert.h> is for static_assert, <endian.h> for byte order, <immintrin.h> for vector
# instructions; pure.sh looks for those of them that read a clock or random numbers.
layer_headers="assert.h endian.h float.h immintrin.h inttypes.h limits.h math.h stdalign.h stdarg.h stdbool.h \
stdatomic.h stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h string.h"
freestanding_headers="stdalign.h stdbool.h stddef.h stdint.h"

# Prints every violation in the files of folder $1 (may include "$2"; system headers "$3" or any).
violations() {
    find "src/$1" -type f \( -name '*.c' -o -name '*.h' \) | sort | while IFS= read -r file; do
        awk -v file="$file" -v self="$1" -v allowed="$2 $1" -v headers="$3" \
            -v freestanding="$freestanding_headers" '
            function has(list, word,    n, i, parts) {
                n = split(list, parts, " ")
                for (i = 1; i <= n; i++) if (parts[i] == word) return 1
                return 0
            }
            function bad(why) { printf "%s:%d: %s: %s\n", file, NR, why, $0 }
            !/^[ \t]*#[ \t]*include/ { next }
            /^[ \t]*#[ \t]*include[ \t]*"/ {
                split($0, quoted, "\"")
                name = quoted[2]
                n = split(name, part, "/")
                if (n < 2 || name ~ /\.\./) { bad("not written as \"folder/file.h\""); next }
                if ((getline line < ("src/" name)) < 0) { bad("no such header in src/"); next }
                close("src/" name)
                if (!has(allowed, part[1])) bad(self " must not include " part[1])
                next
            }
            /^[ \t]*#[ \t]*include[ \t]*</ {
                name = $0
                sub(/^[^<]*</, "", name)
                sub(/>.*/, "", name)
                if (name ~ /^weft\//) next
                if ((file == "src/wire/weft_wire.h" || (self == "agg" && file ~ /\.h$/)) &&
                    !has(freestanding, name)) {
                    bad("compiled for BPF: only " freestanding); next
                }
                if (headers != "any" && !has(headers, name)) bad("not a header for a layer")
                next
            }
            { bad("cannot be read by this check") }' "$file"
    done
}

public_violations() {
    find include/weft -type f -name '*.h' 2>/dev/null | sort | while IFS= read -r file; do
        awk -v file="$file" '
            file == "include/weft/ps_lite.h" && /^#include <[a-z_]+>$/ { next }
            /^[ \t]*#[ \t]*include/ && !/<(weft\/[a-z0-9_]+|std[a-z]+|inttypes|limits)\.h>/ {
                printf "%s:%d: a public header may include only <weft/...>, <std*.h>, <inttypes.h> and " \
                    "<limits.h>: %s\n", file, NR, $0
            }' "$file"
    done
}

# Prints each include through which files of src/io/$1 see src/io/$2, directly or through other
# headers of io. The two drivers may both include io/driver_base.h, but not each other.
driver_violations() {
    seen=" "
    todo=$(find "src/io/$1" -type f -name '*.[ch]' 2>/dev/null | sort)
    while [ -n "$todo" ]; do
        next=
        for file in $todo; do
            [ -f "$file" ] || continue
            grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*\"io/$2/" "$file" |
                sed "s|^\([0-9]*\):|$file:\1: io/$1 must not include io/$2: |"
            for header in $(sed -n 's|^[ 	]*#[ 	]*include[ 	]*"\(io/[^"]*\)".*|\1|p' "$file"); do
                case $seen in
                *" $header "*) ;;
                *)
                    seen="$seen$header "
                    next="$next src/$header"
                    ;;
                esac
            done
        done
        todo=$next
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

for path in src/*/; do
    folder=$(basename "$path")
    [ -n "$(find "$path" -name '*.[ch]' | head -n 1)" ] || continue
    allowed=$(may_include "$folder")
    if [ "$allowed" = unknown ]; then
        report "src/$folder" "src/$folder is unknown: add it to may_include and the list in tests/check/includes.sh"
        continue
    fi
    case " $layers " in
    *" $folder "*) headers=$layer_headers ;;
    *) headers=any ;;
    esac
    report "src/$folder includes only: ${allowed:-itself}" "$(violations "$folder" "$allowed" "$headers")"
done
report "io/udp does not include io/tcp" "$(driver_violations udp tcp)"
report "io/tcp does not include io/udp" "$(driver_violations tcp udp)"
report "include/weft includes no internal headers" "$(public_violations)"

echo "1..$count"
exit $failed
