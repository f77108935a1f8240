#!/bin/sh
# Builds do not depend on their directory: neither the program nor the library nor their debug
# information contains a path of the source tree or of the build folder. Otherwise two builds from
# different folders would differ. Usage: paths.sh <file>...
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

# paths_of <file>: the lines of text in it that contain such a path, absolute or relative (../src/).
paths_of() {
    strings -a -n 3 "$1" | grep -F -e "$WEFT_SOURCE_ROOT/" -e "$WEFT_BUILD_ROOT" -e ../src/ -e ../cli/ |
        sort -u | head -n 20
}

for file in "$@"; do
    tap_is "$(basename "$file") contains no path of the source tree or the build folder" "$(paths_of "$file")" ""
    tap_like "$(basename "$file") names sources relative to the source tree" \
        "$(strings -a "$file")" '^src/base/assert\.c$'
done

echo "$WEFT_BUILD_ROOT/x.c" >"$tap_tmp/example"
tap_is "the check finds such a path" "$(paths_of "$tap_tmp/example")" "$WEFT_BUILD_ROOT/x.c"

tap_done
