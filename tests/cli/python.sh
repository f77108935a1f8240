#!/bin/sh
# The Python package: its declarations match the headers; its tests; its example.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

if [ "$WEFT_BUILD_NAME" != release ]; then
    # A sanitized library also needs its runtime in the program; other tests cover that build.
    tap_skip "the Python package" "not in the $WEFT_BUILD_NAME build"
    tap_done
fi

# python3 in the path may not be the one with the distribution's packages.
python=
for candidate in python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$candidate" -c 'import cffi, numpy' 2>/dev/null; then
        python=$candidate
    fi
done
if [ -z "$python" ]; then
    tap_skip "the Python package" "no python3 with cffi and numpy (Debian: python3-cffi, python3-numpy)"
    tap_done
fi

cd "$tap_tmp" || exit 1
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_JOB_KEY WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB
root=$WEFT_SOURCE_ROOT
PYTHONPATH=$root/python
PYTHONDONTWRITEBYTECODE=1
WEFT_LIBRARY=$WEFT_BUILD_ROOT/libweft.so.0
export PYTHONPATH PYTHONDONTWRITEBYTECODE WEFT_LIBRARY

tap_run "the package's declarations are those of the headers" "$python" "$root/python/make_cdef.py" --check
tap_is "the package's version is that of weft" "weft $("$python" -c 'import weft; print(weft.__version__)')" \
    "$("$WEFT_BIN" --version)"
tap_is "examples/ps_train.py has fewer than 40 lines" "$(($(wc -l <"$root/examples/ps_train.py") < 40))" 1
WEFT_LIBRARY=/none.so "$python" -c 'import weft' 2>run.err
tap_like "a missing library is reported" "$(tail -n 1 run.err)" \
    'ImportError: libweft.so is not found: .*/none.so.*WEFT_LIBRARY'

echo "no library" >text.so
WEFT_LIBRARY=$tap_tmp/text.so "$python" -c 'import weft' 2>run.err
tap_like "a file that is not a library is reported" "$(tail -n 1 run.err)" \
    'ImportError: libweft.so does not load: .*/text.so.*WEFT_LIBRARY'

# A library of another release, or one without a release.
echo 'const char *weft_version(void) { return "9.9.9"; }' >other.c
echo 'int weft_status_text(void) { return 0; }' >earlier.c
for release in other earlier; do
    cc -shared -fPIC "$release.c" -o "$release.so"
    WEFT_LIBRARY=$tap_tmp/$release.so "$python" -c 'import weft' 2>"$release.err"
done
ours=$("$WEFT_BIN" --version)
tap_like "a library of another release is reported" "$(tail -n 1 other.err)" \
    "ImportError: the library .*/other.so is weft 9.9.9, but this Python package is $ours, .*; "
tap_like "a library of an earlier release is reported" "$(tail -n 1 earlier.err)" \
    "ImportError: the library .*/earlier.so is weft of an earlier release, but .* $ours, .*; "

# The library next to the package has precedence over all but WEFT_LIBRARY.
mkdir site
cp -r "$root/python/weft" site/
cp other.so site/weft/libweft.so.0
env -u WEFT_LIBRARY PYTHONPATH=site "$python" -c 'import weft' 2>run.err
tap_like "a library in the package directory is opened first" "$(tail -n 1 run.err)" \
    "ImportError: the library $tap_tmp/site/weft/libweft.so.0 is weft 9.9.9, .*; .*pip install"
tap_run "WEFT_LIBRARY has precedence over it" env PYTHONPATH=site "$python" -c 'import weft'

for tests in test_ps test_coll; do
    tap_include "$tests.py" "$python" "$root/tests/python/$tests.py"
done

tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key
WEFT_JOB_KEY=$(cat job.key)
export WEFT_JOB_KEY
"$WEFT_BIN" server --workers 2 --port 0 >server.out 2>server.err &
server=$!
tries=0
until grep -q '^shard .*:' server.out 2>/dev/null || [ "$tries" = 2400 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
WEFT_SERVERS=$(sed -n 's/^shard .*: //p' server.out)
WEFT_WORKERS=2
export WEFT_SERVERS WEFT_WORKERS
WEFT_RANK=0 "$python" "$root/examples/ps_train.py" >0.out 2>0.err &
first=$!
status=0
WEFT_RANK=1 "$python" "$root/examples/ps_train.py" >1.out 2>1.err || status=$?
wait "$first" || status=$?
tap_is "both processes of ps_train.py exit with 0, without errors" "$status $(cat 0.err 1.err)" "0 "
tap_is "both reach an accuracy of 0.8" \
    "$(cat 0.out 1.out | awk '/^accuracy/ { n += $2 >= 0.8 } END { print n + 0 }')" 2
kill "$server"
wait "$server" 2>/dev/null

# A checkpoint during pushes is consistent: after a restore on four shards and on one, each pair of rows sums to zero.
tap_run "a checkpoint during pushes succeeds" "$python" "$root/bench/checkpoint_dip.py" --rows 20000 \
    --batch 2000 --seconds 0.3 --folder "$tap_tmp/dip"
tap_is "no pair of rows is inconsistent after a restore" "$(grep -o '"restored_on_shards.*' "$tap_tmp/run.out" |
    sed 's/, "pairs_changed_since_filled": [1-9][0-9]*//' | tr '\n' ' ')" \
    '"restored_on_shards": 4, "pairs": 10000, "torn": 0} "restored_on_shards": 1, "pairs": 10000, "torn": 0} '

# Under weft run the coordinator provides servers and rank.
unset WEFT_SERVERS WEFT_WORKERS WEFT_JOB_KEY
tap_run "ps_train.py succeeds under weft run" "$WEFT_BIN" run -n 2 -s 2 -- env -u WEFT_SERVERS \
    -u WEFT_WORKERS -u WEFT_RANK "$python" "$root/examples/ps_train.py"
tap_is "both reach an accuracy of 0.8 under weft run" "$(awk '/accuracy/ { n += $NF >= 0.8 } END { print n + 0 }' run.out)" 2

tap_done
