#!/bin/sh
# Checks that the walks of docs/ARCHITECTURE.md are correct: if a step names a function and a file,
# as in `weft_push` (src/api/ps_begin.c), the file defines the function. Usage: walks.sh [root]
set -u
LC_ALL=C
export LC_ALL
root=${1:-$(dirname "$0")/../..}
cd "$root" || exit 2

# "function file" of each step. One line may name several.
steps() {
    grep -o '`[a-z_0-9]*` (src/[a-z_0-9/.]*)' docs/ARCHITECTURE.md | sed 's/`\([^`]*\)` (\(.*\))/\1 \2/' | sort -u
}

# True if function $1 is defined in file $2. A declaration or a call is not a definition.
defined() {
    [ -f "$2" ] && awk -v name="$1" '
        head && /^\{/ { found = 1; exit }
        head && /;/ { head = 0 }
        $0 ~ ("^[a-z].*[ *]" name "\\(") { head = !/;/ }
        END { exit !found }' "$2"
}

count=0
failed=0
list=$(steps)
while read -r name file; do
    [ -n "$name" ] || continue
    count=$((count + 1))
    if defined "$name" "$file"; then
        echo "ok $count - $name is in $file"
    else
        failed=1
        echo "not ok $count - $name is not in $file"
    fi
done <<END
$list
END
[ $count -ge 20 ] || { failed=1; count=$((count + 1)); echo "not ok $count - the walks name at least 20 functions"; }
echo "1..$count"
exit $failed
