#!/bin/sh
# weft.torch with a PyTorch: that of build/venv (tools/venv), or of WEFT_PYTHON.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

# shellcheck source=tests/cli/torch_python.sh
. "$WEFT_SOURCE_ROOT/tests/cli/torch_python.sh"

tap_include "test_torch.py" "$python" "$root/tests/python/test_torch.py"

# The distribution's, an old one, where it is installed (Debian: python3-torch).
theirs=$(/usr/bin/python3 -c 'import cffi, numpy, torch; print(torch.__version__)' 2>/dev/null)
if [ -n "$theirs" ] && [ "$theirs" != "$("$python" -c 'import torch; print(torch.__version__)')" ]; then
    tap_include "test_torch.py with PyTorch $theirs" /usr/bin/python3 "$root/tests/python/test_torch.py"
else
    tap_skip "the distribution's PyTorch" "not installed, or the one that was tested"
fi

# Installed, it is found by its entry point: the script says nothing of weft.
"$python" -m pip --version >/dev/null 2>&1 && has_pip=1 || has_pip=
if [ -n "$has_pip" ] && "$python" -c 'import setuptools' 2>/dev/null; then
    cp -r "$root/python" source
    tap_run "pip install" "$python" -m pip install --quiet --no-deps --no-build-isolation \
        --no-input --disable-pip-version-check --target "$tap_tmp/site" ./source
    cat >script.py <<'EOF'
import torch, torch.distributed as dist
dist.init_process_group("weft")
t = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(t)
print("sum", t[0].item(), dist.get_backend())
dist.destroy_process_group()
EOF
    PYTHONPATH=$tap_tmp/site
    tap_like "torchrun of a script that does not name weft" "$("$python" -m torch.distributed.run \
        --standalone --nproc_per_node 2 script.py 2>run.err)" '^sum 3.0 weft'
    sed 's/^/#   /' run.err | tail -n 3
    PYTHONPATH=$root/python
    tap_like "python -m weft.torch" "$(TORCH_DEVICE_BACKEND_AUTOLOAD=0 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=0 RANK=0 WORLD_SIZE=1 "$python" -m weft.torch script.py 2>run.err)" \
        '^sum 1.0 weft'
else
    tap_skip "pip install" "$python has no pip or no setuptools"
fi
tap_done
