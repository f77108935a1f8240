#!/bin/sh
# In each job under torchrun, one rank is killed (SIGKILL) or frozen (SIGSTOP) at a time drawn from
# a seed: while Python starts, at the rendezvous, in forward, backward or barrier, or at the end.
# The other ranks report the failure before their operations time out, and no rank hangs. torchrun's restart
# resumes from the last checkpoint.
#
#     WEFT_TORCH_KILLS=50 meson test -C build cli_torch_kills -t 0    50 jobs instead of 3
#     WEFT_TORCH_KILLS_SEED=17 WEFT_TORCH_KILLS=1 ...                 job 17 alone
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"
# shellcheck source=tests/cli/torch_python.sh
. "$WEFT_SOURCE_ROOT/tests/cli/torch_python.sh"

tap_include "torch_kills.py" "$python" "$root/tests/cli/torch_kills.py" "${WEFT_TORCH_KILLS:-3}" \
    "${WEFT_TORCH_KILLS_SEED:-19}"
tap_done
