# Common start of the tests with PyTorch; they source it after tests/lib/tap.sh. It sets python and
# root, or ends the test as skipped.
# shellcheck shell=sh disable=SC2034
if [ "$WEFT_BUILD_NAME" != release ]; then
    # A sanitized library also needs its runtime in the program; other tests cover that build.
    tap_skip "weft.torch" "not in the $WEFT_BUILD_NAME build"
    tap_done
fi
root=$WEFT_SOURCE_ROOT
python=
for candidate in ${WEFT_PYTHON:+"$WEFT_PYTHON"} "$WEFT_BUILD_ROOT/venv/bin/python" python3; do
    if [ -z "$python" ] && "$candidate" -c 'import cffi, numpy, torch' 2>/dev/null; then
        python=$candidate
    fi
done
if [ -z "$python" ]; then
    tap_skip "weft.torch" "no Python with torch, numpy and cffi (install one with tools/venv, or set WEFT_PYTHON)"
    tap_done
fi

cd "$tap_tmp" || exit 1
unset WEFT_JOB_KEY WEFT_KEY_FILE WEFT_HOST MASTER_ADDR RANK WORLD_SIZE
PYTHONPATH=$root/python
PYTHONDONTWRITEBYTECODE=1
WEFT_LIBRARY=$WEFT_BUILD_ROOT/libweft.so.0
export PYTHONPATH PYTHONDONTWRITEBYTECODE WEFT_LIBRARY
echo "# $("$python" -c 'import torch; print("PyTorch", torch.__version__)')"

# forks: starts a process with PyTorch imported; `forked SCRIPT|-m MODULE ...` then runs like "$python" in a fork of it.
forks() {
    "$python" "$root/tests/python/forked.py" "$tap_tmp/forked" &
    forks=$!
    tap_at_exit 'kill "$forks" 2>/dev/null; wait "$forks" 2>/dev/null'
    tap_until test -S "$tap_tmp/forked"
}

forked() { "$python" -S -E "$root/tests/python/forked.py" "$tap_tmp/forked" "$@"; }
