#!/bin/sh
# Every verb has a manual page with the options of its --help, and the pages have no formatting
# errors.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

pages=$WEFT_BUILD_ROOT/man

# The verbs under "commands:" of a help text.
verbs_of() {
    "$WEFT_BIN" "$@" --help | sed -n '/^commands:$/,/^$/s/^  \([a-z]*\) .*/\1/p'
}

# check <verb words...>: check the page of this verb, then those of its subcommands.
check() {
    page=$pages/$(echo "weft $*" | sed 's/ *$//; s/ /-/g').1
    name=$(basename "$page")
    if [ ! -s "$page" ]; then
        tap_fail "$name exists" "no $page; add the verb to man/meson.build"
        return
    fi
    help=$("$WEFT_BIN" "$@" --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p' | sort)
    tap_is "$name has the options of --help" \
        "$(sed -n 's/^\.It Fl -\([a-z0-9-]*\).*/\1/p' "$page" | sort)" "$help"
    tap_is "$name has an argument for every option that has one" "$(grep -c '^\.It Fl -[a-z0-9-]* Ar [^ ]' "$page")" \
        "$("$WEFT_BIN" "$@" --help | grep -c '^  --[a-z0-9-]* [^ ]')"
    lint "$page"
    for subverb in $(verbs_of "$@"); do
        tap_like "$name lists $subverb" "$(cat "$page")" "^\.It Cm $subverb$"
    done
}

lint() {
    if command -v mandoc >/dev/null; then
        tap_is "mandoc finds no error in $(basename "$1")"$1") is clean" "$(mandoc -Tlint -Wwarning "$1" 2>&1)" ""
    else
        tap_skip "mandoc finds no error in $(basename "$1")"$1") is clean" "no mandoc"
    fi
}

check
for verb in $(verbs_of); do
    check "$verb"
    for below in $(verbs_of "$verb"); do
        check "$verb" "$below"
    done
done
lint "$WEFT_SOURCE_ROOT/man/weft_coll.3"
lint "$WEFT_SOURCE_ROOT/man/weft_ps.3"
lint "$WEFT_SOURCE_ROOT/man/weft_transport.3"

tap_done
