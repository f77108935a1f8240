#!/bin/sh
# Checks that no line with a comment in C sources and headers is longer than 100 columns; the rest of
# the code is formatted by clang-format, which does not break long words and strings.
# Usage: columns.sh [root of the tree]
# columns_self.sh shows that this check can fail.
set -u
root=${1:-$(dirname "$0")/../..}
cd "$root" || exit 2
LC_ALL=C.UTF-8 # columns, not bytes
export LC_ALL

number=0
failed=0
for folder in include src bpf cli tests bench examples; do
    [ -d "$folder" ] || continue
    number=$((number + 1))
    long=$(grep -rnE --include='*.c' --include='*.h' '^.{101,}$' "$folder" | grep -E ':[0-9]+:( *\*[ /]|(.*[^"])?/[*/] )')
    if [ -z "$long" ]; then
        echo "ok $number - comments in $folder have at most 100 columns"
    else
        echo "not ok $number - comments in $folder have at most 100 columns"
        echo "$long" | sed 's/^/# /'
        failed=1
    fi
done
echo "1..$number"
exit $failed
