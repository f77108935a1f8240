#!/bin/sh
# libweft.so exports exactly the functions that the public headers mark with WEFT_API, and the
# version script and the manual pages have the same names. Neither the library nor the program is
# linked with libraries that are loaded on demand. Usage: symbols.sh <root> <libweft.so> <soname>
# <weft>
set -u
LC_ALL=C
export LC_ALL
root=$1
library=$2
soname=$3
program=$4
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# "type name(arguments)", one per line; in the manual that is .Ft type, .Fn name "argument" ...
cat "$root"/include/weft/*.h | grep -v '^#' | tr '\n' ' ' | tr -s ' ' |
    grep -o 'WEFT_API [^;(]*([^;]*);' | sed 's/^WEFT_API //; s/;$//' | sort >"$tmp/declared"
awk '
    /^\.Ft / { type = substr($0, 5); gsub(/"/, "", type) }
    /^\.Fn weft_.* "/ {
        name = $2
        arguments = substr($0, index($0, "\"") + 1)
        sub(/"$/, "", arguments)
        gsub(/" "/, ", ", arguments)
        print type (type ~ /\*$/ ? "" : " ") name "(" arguments ")"
    }' "$root/man/weft_coll.3" "$root/man/weft_fabric.3" "$root/man/weft_ps.3" "$root/man/weft_transport.3" | sort >"$tmp/manual"
sed 's/(.*//; s/.*[ *]//' "$tmp/declared" | sort >"$tmp/headers"
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
    sort >"$tmp/exported"
sed -n 's/^ *\(weft_[a-z0-9_]*\);$/\1/p' "$root/src/api/libweft.map" | sort >"$tmp/map"

count=0
failed=0
same() { # same <name> <file> <file>
    count=$((count + 1))
    if [ -s "$2" ] && cmp -s "$2" "$3"; then
        echo "ok $count - $1"
    else
        failed=1
        echo "not ok $count - $1"
        diff "$2" "$3" | sed 's/^/#   /'
    fi
}
same "the exported functions are those of the headers" "$tmp/headers" "$tmp/exported"
same "the version script has the functions of the headers" "$tmp/headers" "$tmp/map"
same "the manual pages have the prototypes of the headers" "$tmp/declared" "$tmp/manual"

readelf -d "$library" | sed -n 's/.*Library soname: \[\(.*\)\]/\1/p' >"$tmp/soname"
echo "$soname" >"$tmp/wanted"
same "the soname is that of meson.build" "$tmp/wanted" "$tmp/soname"

# A binary that is linked with one of these libraries does not start on a host without it
# (src/crypto/ipsec_mb_library.h, src/obs/http_library.h).
for binary in "$library" "$program"; do
    readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >"$tmp/needed"
    grep -v '^lib\(IPSec_MB\|microhttpd\)\.' "$tmp/needed" >"$tmp/wanted"
    same "$(basename "$binary") is not linked with libraries that are loaded on demand" "$tmp/wanted" "$tmp/needed"
done

echo "1..$count"
exit $failed
