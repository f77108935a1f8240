#!/bin/sh
# tools/bootstrap with a fake apt: a required package is installed or bootstrap fails; an optional
# one never makes it fail. The test uses its own list; nothing is installed.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

mkdir -p "$tap_tmp/tree/tools" "$tap_tmp/bin"
cp "$WEFT_SOURCE_ROOT/tools/bootstrap" "$tap_tmp/tree/tools/bootstrap"
cat >"$tap_tmp/tree/tools/packages.txt" <<'LIST'
build    needed        -   in every build
build?   luxury        -   weft does without
test?    test-luxury   -   so do its tests
LIST

# $HAS: installed packages. $KNOWS: packages that apt can install. $BROKEN: packages whose
# installation fails.
cat >"$tap_tmp/bin/dpkg-query" <<'FAKE'
#!/bin/sh
for name in $HAS; do echo "installed $name"; done
FAKE
cat >"$tap_tmp/bin/apt-cache" <<'FAKE'
#!/bin/sh
case " $KNOWS " in *" $2 "*) printf '%s:\n  Candidate: 1.0\n' "$2" ;; esac
FAKE
cat >"$tap_tmp/bin/apt-get" <<'FAKE'
#!/bin/sh
echo "$*" | sed 's/-o [^ ]* *//g; s/-y --no-install-recommends //' >>"$CALLS"
for name in $BROKEN; do
    case " $* " in *" $name "*) echo "E: $name"; exit 100 ;; esac
done
FAKE
printf '#!/bin/sh\necho "${FAKE_ID:-0}"\n' >"$tap_tmp/bin/id"
printf '#!/bin/sh\nexit 1\n' >"$tap_tmp/bin/sudo"
chmod +x "$tap_tmp"/bin/*
CALLS=$tap_tmp/calls
export CALLS

# bootstrap <case> <wanted exit status> <wanted calls of apt-get, with | between> <variable=value>...
bootstrap() {
    name=$1
    wanted_status=$2
    wanted_calls=$3
    shift 3
    : >"$CALLS"
    status=0
    env PATH="$tap_tmp/bin:$PATH" WEFT_BOOTSTRAP=yes HAS= KNOWS= BROKEN= "$@" \
        "$tap_tmp/tree/tools/bootstrap" >"$tap_tmp/out" 2>&1 </dev/null || status=$?
    tap_is "$name" "$status $(tr '\n' '|' <"$CALLS")" "$wanted_status $wanted_calls"
}

bootstrap "all is there"                   0 '' HAS='needed luxury'
bootstrap "what is needed is installed"    0 'update -qq|install needed|'
bootstrap "what weft does without as well" 0 'update -qq|install needed|install luxury|' KNOWS=luxury
bootstrap "and alone before a build"       0 'install luxury|' HAS=needed KNOWS='luxury test-luxury'
bootstrap "if apt has no such package"     0 '' HAS=needed
bootstrap "if it does not install"         0 'install luxury|' HAS=needed KNOWS=luxury BROKEN=luxury
tap_like "which is said" "$(cat "$tap_tmp/out")" 'luxury does not install; going on without$'
bootstrap "what is needed must install"    1 'update -qq|install needed|' KNOWS=luxury BROKEN=needed
bootstrap "nobody is asked for a luxury"   0 '' HAS=needed KNOWS=luxury FAKE_ID=1000
bootstrap "but for what is needed"         1 '' KNOWS=luxury FAKE_ID=1000
tap_like "with the command"  "$(cat "$tap_tmp/out")" 'apt-get install .* needed *$'
mkdir "$tap_tmp/tree/build-asan"
bootstrap "not before every build"         0 '' HAS=needed KNOWS=luxury

tap_done
