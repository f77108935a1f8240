"""How the ranks of a process group find each other: through its store, which PyTorch has anyway."""

import os
import secrets
import socket

from .._library import Error, NotFoundError
from ..coll import Communicator


def _place():
    """Equal for processes that reach each other over loopback: one kernel, one network namespace."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip() + " " + os.readlink("/proc/self/ns/net")


def _exchange(store, what, rank, size, value):
    store.set(f"weft/{what}/{rank}", value)
    return [store.get(f"weft/{what}/{i}").decode() for i in range(size)]


def _host(all_here):
    """The address that other ranks reach this one by."""
    named = os.environ.get("WEFT_HOST")
    if named:
        return named
    if all_here:
        return "127.0.0.1"
    master = os.environ.get("MASTER_ADDR")
    if not master:
        raise Error(
            "the ranks are on several hosts, and there is no MASTER_ADDR to see which address they "
            "reach this one by; set WEFT_HOST to an address of this host"
        )
    family, _, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
        probe.connect(address)
        return probe.getsockname()[0]


def _open(store, rank, size, all_here, options):
    """A job key if there is one; a fresh one where all ranks are on this host."""
    epoch = store.get("weft/epoch").decode() if rank else f"{secrets.randbits(40)}"
    if rank == 0:
        store.set("weft/epoch", epoch)
    options = {"host": _host(all_here), "epoch": int(epoch), **options}
    if os.environ.get("WEFT_KEY_FILE"):
        options.setdefault("key_file", os.environ["WEFT_KEY_FILE"])
    try:
        return Communicator(rank, size, **options)
    except NotFoundError:
        if not all_here:
            raise
    if rank == 0:
        store.set("weft/key", secrets.token_bytes(32).hex())
    return Communicator(rank, size, key=bytes.fromhex(store.get("weft/key").decode()), **options)


def meet(store, rank, size, timeout, **options):
    """A communicator of all ranks. timeout: in seconds. options: of Communicator."""
    places = _exchange(store, "place", rank, size, _place())
    comm = _open(store, rank, size, len(set(places)) == 1, options)
    try:
        comm.join(_exchange(store, "address", rank, size, comm.address), timeout)
    except BaseException:
        comm.close()
        raise
    return comm
