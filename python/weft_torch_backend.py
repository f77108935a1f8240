"""Registers "weft" as a backend name for init_process_group. In PyTorch 2.5 and later `import torch`
calls register (entry point torch.backends).

Anything raised here would make `import torch` fail, for every program that has weft installed. So this
module loads nothing of weft before a process group is made, and raises nothing.
"""


def _make(store, rank, size, timeout):
    from weft.torch.process_group import ProcessGroupWeft

    return ProcessGroupWeft.from_store(store, rank, size, timeout)


def register():
    try:
        import torch.distributed as dist

        if not dist.is_available() or "WEFT" in dist.Backend._plugins:
            return
        try:
            dist.Backend.register_backend("weft", _make, devices=["cpu", "cuda"])
        except TypeError:  # before PyTorch 2.0
            dist.Backend.register_backend("weft", _make)
    except Exception:
        pass
