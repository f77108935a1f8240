#!/bin/sh
# Checks that columns.sh finds comments that are too long, and nothing else.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
check=$WEFT_SOURCE_ROOT/tests/check/columns.sh
mkdir -p "$tap_tmp/src/base"
file=$tap_tmp/src/base/a.c
x90=$(printf '%090d' 0)
accepts() { # accepts <case> <line>
    printf '%s\n' "$2" >"$file"
    tap_run "$1" "$check" "$tap_tmp"
}
finds() { # finds <case> <line>
    printf '%s\n' "$2" >"$file"
    tap_run_fails "$1" 1 "$check" "$tap_tmp"
    tap_like "with file and line" "$(cat "$tap_tmp/run.out")" '^# src/base/a.c:1:'
}
accepts "100 columns are accepted" "/* $x90 123 */"
accepts "100 columns of more than 100 bytes are accepted" "/* $x90 12µ */"
accepts "a long line of code is accepted" "int a123456789 = 1$x90;"
finds "101 columns are found" "/* $x90 1234 */"
finds "a long line within a comment is found" " * $x90 1234567"
finds "a long line with a comment after code is found" "int b = 1; /* $x90 */"
finds "a long line comment is found" "// $x90 12345678"
tap_done
