#!/bin/sh
# tools/bootstrap with a fake apt: bootstrap installs required packages or fails; an optional
# package never makes it fail. The test uses its own list of packages; nothing is installed.
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

bootstrap "all packages are installed: no call" 0 '' HAS='needed luxury'
bootstrap "a required package is installed" 0 'update -qq|install needed|'
bootstrap "an optional package is installed" 0 'update -qq|install needed|install luxury|' KNOWS=luxury
bootstrap "an optional package alone is installed before the first build" 0 'install luxury|' HAS=needed KNOWS='luxury test-luxury'
bootstrap "an optional package that apt does not have is omitted" 0 '' HAS=needed
bootstrap "an optional package that cannot be installed is no error" 0 'install luxury|' HAS=needed KNOWS=luxury BROKEN=luxury
tap_like "a message says so" "$(cat "$tap_tmp/out")" 'luxury does not install; going on without$'
bootstrap "a required package that cannot be installed is an error" 1 'update -qq|install needed|' KNOWS=luxury BROKEN=needed
bootstrap "without root an optional package is not installed" 0 '' HAS=needed KNOWS=luxury FAKE_ID=1000
bootstrap "without root a missing required package is an error" 1 '' KNOWS=luxury FAKE_ID=1000
tap_like "the error has the command to run"  "$(cat "$tap_tmp/out")" 'apt-get install .* needed *$'
mkdir "$tap_tmp/tree/build-asan"
bootstrap "an optional package is not installed before later builds" 0 '' HAS=needed KNOWS=luxury

tap_done
