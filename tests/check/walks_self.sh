#!/bin/sh
# Checks that walks.sh can fail: a small tree with a correct walk, then an incorrect one.
here=$(dirname "$0")
# shellcheck source=tests/lib/tap.sh
. "$here/../lib/tap.sh"

tree=$tap_tmp/tree

good_tree() {
    rm -rf "$tree"
    mkdir -p "$tree/docs" "$tree/src/core"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        echo "$i. \`step_$i\` (src/core/steps.c) does its part." >>"$tree/docs/ARCHITECTURE.md"
        printf 'static void step_%d(void)\n{\n}\n' $i >>"$tree/src/core/steps.c"
    done
}

good_tree
tap_run "a correct walk passes" "$here/walks.sh" "$tree"

good_tree
sed -i 's/step_7(/step_seven(/' "$tree/src/core/steps.c"
tap_run_fails "a function with another name fails" 1 "$here/walks.sh" "$tree"

good_tree
printf 'void caller(void)\n{\n    step_21();\n}\n' >>"$tree/src/core/steps.c"
echo '21. `step_21` (src/core/steps.c) is only called there.' >>"$tree/docs/ARCHITECTURE.md"
tap_run_fails "a call is not a definition" 1 "$here/walks.sh" "$tree"

good_tree
printf 'static void step_21(int a,\n                    int b);\nstatic int other(void)\n{\n}\n' >>"$tree/src/core/steps.c"
echo '21. `step_21` (src/core/steps.c) is only declared there.' >>"$tree/docs/ARCHITECTURE.md"
tap_run_fails "a declaration is not a definition" 1 "$here/walks.sh" "$tree"

good_tree
mv "$tree/src/core/steps.c" "$tree/src/core/stairs.c"
tap_run_fails "a missing file fails" 1 "$here/walks.sh" "$tree"

good_tree
echo 'Nothing.' >"$tree/docs/ARCHITECTURE.md"
tap_run_fails "a page without a walk fails" 1 "$here/walks.sh" "$tree"

tap_done
