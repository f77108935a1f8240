#!/bin/sh
# weft.torch.Embedding: its tests, with the PyTorch versions of tests/cli/torch.sh, and its example under
# torchrun.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

# shellcheck source=tests/cli/torch_python.sh
. "$WEFT_SOURCE_ROOT/tests/cli/torch_python.sh"
unset WEFT_SERVERS WEFT_RANK WEFT_WORKERS WEFT_COORDINATOR WEFT_MEMBER WEFT_JOB MASTER_PORT
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

tests=$root/tests/python/test_torch_embedding.py
tap_include "test_torch_embedding.py" "$python" "$tests"
theirs=$(/usr/bin/python3 -c 'import cffi, numpy, torch; print(torch.__version__)' 2>/dev/null)
if [ -n "$theirs" ] && [ "$theirs" != "$("$python" -c 'import torch; print(torch.__version__)')" ]; then
    tap_include "test_torch_embedding.py with PyTorch $theirs" /usr/bin/python3 "$tests"
else
    tap_skip "the distribution's PyTorch" "not installed, or the version that was tested above"
fi

# The example, run as described in its first lines, with synthetic data.
tap_run "keygen succeeds" "$WEFT_BIN" keygen job.key
"$WEFT_BIN" server --key-file job.key --workers 2 --port 0 >server.out 2>server.err &
server=$!
tries=0
until grep -q '^shard .*:' server.out 2>/dev/null || [ "$tries" = 2400 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
WEFT_SERVERS=$(sed -n 's/^shard .*: //p' server.out)
WEFT_KEY_FILE=$tap_tmp/job.key
export WEFT_SERVERS WEFT_KEY_FILE
tap_run "examples/torch_embedding.py succeeds under torchrun" "$python" -m torch.distributed.run --standalone \
    --nproc_per_node 2 "$root/examples/torch_embedding.py"
tap_is "its loss falls by more than half" "$(awk '/^epoch 1 / { first = $4 } /^epoch 8 / { last = $4 }
    END { print (first > 0.6 && last > 0 && last < 0.5 * first) }' run.out)" 1
tap_is "its accuracy on test data is at least 0.8" "$(awk '/^epoch 8 / { print ($6 >= 0.8) }' run.out)" 1
grep '^epoch' run.out | sed 's/^/#   /'
kill "$server"
wait "$server" 2>/dev/null
tap_done
