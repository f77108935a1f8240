#!/bin/sh
# Writes the manual page of a verb (mdoc) from the output of its --help: page.sh WEFT [VERB...]
#
# The table that parses the options also generates `weft VERB --help`, so the page always agrees
# with the program. man/NAME.more, also mdoc, has the sections that help lacks (files, environment);
# it is inserted before EXIT STATUS. Without a verb: weft(1).
set -eu
LC_ALL=C
export LC_ALL
here=$(cd "$(dirname "$0")" && pwd)
weft=$1
shift
page=$(echo "weft $*" | sed 's/ *$//; s/ /-/g')
more=$here/$page.more
[ -f "$more" ] || more=/dev/null
# The day of the newest entry of CHANGELOG.md: the same sources give the same page.
day=$(grep -o '^## .*[0-9]-[0-9][0-9]-[0-9][0-9]' "$here/../CHANGELOG.md" | head -n 1 |
    grep -o '[0-9]*-[0-9]*-[0-9]*$')

"$weft" "$@" --help | awk -v page="$page" -v verb="$*" -v day="$day" -v more="$more" '
function escape(text) {
    gsub(/\\/, "\\e", text)
    if (text ~ /^[.'\'']/) text = "\\&" text
    return text
}
function put(text) {                        # a sentence begins on a line of its own
    while (match(text, /[.?!] +[A-Z]/)) {
        print escape(substr(text, 1, RSTART))
        text = trim(substr(text, RSTART + 1))
    }
    if (text != "") print escape(text)
}
function trim(text) { sub(/^ +/, "", text); return text }
function open_list(title) {
    if (verb != "") print ".Pp"
    print title
    print ".Bl -tag -width Ds"
    listing = 1
}
function close_list() { if (listing) print ".El"; listing = 0 }
function date_words(    part, names) {
    split("January February March April May June July August September October November December",
          names, " ")
    split(day, part, "-")
    return names[part[2] + 0] " " (part[3] + 0) ", " part[1]
}
# "--workers N" as macros; what follows the option and its argument is its text.
function put_option(line,    name, rest, word) {
    line = trim(line)
    name = line; sub(/ .*/, "", name)
    rest = substr(line, length(name) + 1)
    sub(/^--/, "", name)
    word = ""
    if (match(rest, /^ [^ ]+( [^ ]+)*/)) { word = substr(rest, 2, RLENGTH - 1) }
    if (rest ~ /^  /) word = ""            # two spaces: the text begins, there is no argument
    rest = trim(substr(rest, word == "" ? 1 : length(word) + 2))
    print ".It Fl -" name (word == "" ? "" : " Ar " word)
    put(rest)
}
function put_word(line,    name) {          # an entry of a list of verbs
    line = trim(line)
    name = line; sub(/ .*/, "", name)
    print ".It Cm " name
    put(trim(substr(line, length(name) + 1)))
}
BEGIN {
    print ".Dd " date_words()
    print ".Dt " toupper(page) " 1"
    print ".Os"
    section = "name"
}
section == "name" {
    print ".Sh NAME"
    print ".Nm " page
    text = $0; sub(/^[^:]*: /, "", text)
    print ".Nd " text
    section = "head"
    next
}
/^usage: / {
    text = $0; sub(/^usage: weft */, "", text)
    if (verb != "") text = trim(substr(text, length(verb) + 1))
    print ".Sh SYNOPSIS"
    print ".Nm weft" (verb == "" ? "" : " " verb)
    n = split(text, words, " ")
    for (i = 1; i <= n; i++) {
        if (words[i] == "[options]") print ".Op Ar options"
        else print ".Ar " words[i]
    }
    print ".Sh DESCRIPTION"
    if (verb != "") {
        print ".Nm weft " verb
        print "is part of"
        print ".Xr weft 1 ,"
        print "a partially reliable transport and parameter server for machine learning on Ethernet."
        fresh = 1
    }
    section = "text"
    next
}
/^options:$/ { close_list(); open_list("The options are:"); section = "options"; next }
/^[a-z ]+ options:$/ {
    close_list()
    open_list(toupper(substr($0, 1, 1)) substr($0, 2))
    section = "options"
    next
}
/^commands:$/ { close_list(); open_list("The commands are:"); section = "commands"; next }
/^example:$/ { close_list(); section = "example"; example = ""; next }
/^exit status: / { next }                   # the section below says it
section == "options" && /^  --/ { put_option($0); next }
section == "commands" && /^  [a-z]/ { put_word($0); next }
section == "example" && /^  / { example = example substr($0, 3) "\n"; next }
section == "example" && /^$/ { next }
/^$/ { if (section == "options" || section == "commands") { close_list(); section = "text" }
       if (section == "text") fresh = 1
       next }
section == "text" && fresh { print ".Pp"; fresh = 0 }
{ put(trim($0)) }
END {
    close_list()
    while ((getline line < more) > 0) print line
    print ".Sh EXIT STATUS"
    print ".Bl -tag -width Ds"
    print ".It 0"
    print "success"
    print ".It 1"
    print "the run failed; the message names the process, file or line"
    print ".It 2"
    print "the command line is wrong; the message contains the allowed values"
    print ".El"
    if (example != "") {
        print ".Sh EXAMPLES"
        print ".Bd -literal -offset indent"
        n = split(example, lines, "\n")
        for (i = 1; i < n; i++) print escape(lines[i])
        print ".Ed"
    }
    print ".Sh SEE ALSO"
    if (page != "weft") print ".Xr weft 1 ,"
    print ".Xr weft_transport 3"
}'
