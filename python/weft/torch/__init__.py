"""weft for PyTorch: gradients are exchanged over weft, with a bounded fraction of them missing.

A process group, for unchanged scripts that use torch.distributed:

    torch.distributed.init_process_group("weft")

Or a hook of DistributedDataParallel, over any process group, which may lose a fraction of the gradients
and keeps lost elements for the next step:

    model.register_comm_hook(weft.torch.HookState(bound=0.1), weft.torch.allreduce_hook)

With weft.torch.Embedding the rows of an embedding are stored and trained at weft's parameter server.

The manual is docs/PYTORCH.md.
"""

from .embedding import Embedding
from .hook import HookState, allreduce_hook
from .process_group import ProcessGroupWeft, all_reduce, monitored_barrier, register

register()

__all__ = [
    "Embedding",
    "HookState",
    "ProcessGroupWeft",
    "all_reduce",
    "allreduce_hook",
    "monitored_barrier",
    "register",
]
