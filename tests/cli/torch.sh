#!/bin/sh
# weft.torch with the PyTorch of build/venv (tools/venv) or of WEFT_PYTHON.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

# shellcheck source=tests/cli/torch_python.sh
. "$WEFT_SOURCE_ROOT/tests/cli/torch_python.sh"

tap_include "test_torch.py" "$python" "$root/tests/python/test_torch.py"

# The distribution's older PyTorch, if installed (Debian: python3-torch).
theirs=$(/usr/bin/python3 -c 'import cffi, numpy, torch; print(torch.__version__)' 2>/dev/null)
if [ -n "$theirs" ] && [ "$theirs" != "$("$python" -c 'import torch; print(torch.__version__)')" ]; then
    tap_include "test_torch.py with PyTorch $theirs" /usr/bin/python3 "$root/tests/python/test_torch.py"
else
    tap_skip "the distribution's PyTorch" "not installed, or the version that was tested above"
fi

# wheel.sh tests that an installed package needs no `python -m weft.torch`.
cat >script.py <<'EOF'
import torch, torch.distributed as dist
dist.init_process_group("weft")
t = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(t)
print("sum", t[0].item(), dist.get_backend())
dist.destroy_process_group()
EOF
tap_like "python -m weft.torch runs a script with the weft backend" "$(TORCH_DEVICE_BACKEND_AUTOLOAD=0 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT=0 RANK=0 WORLD_SIZE=1 "$python" -m weft.torch script.py 2>run.err)" \
    '^sum 1.0 weft'
tap_done
