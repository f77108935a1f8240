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


class _Meeting:
    """One of several that may take place in a store, when groups are made again: nobody comes to the next
    before all have been at this one."""

    def __init__(self, store, rank, size):
        self._store, self._rank, self._size = store, rank, size
        self._name = f"weft/{(store.add('weft/came', 1) - 1) // size}"

    def exchange(self, what, value):
        self._store.set(f"{self._name}/{what}/{self._rank}", value)
        return [self._store.get(f"{self._name}/{what}/{i}").decode() for i in range(self._size)]

    def from_first(self, what, make):
        """What rank 0 makes, at all."""
        if self._rank == 0:
            self._store.set(f"{self._name}/{what}", make())
        return self._store.get(f"{self._name}/{what}").decode()


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


def _open(meeting, rank, size, all_here, options):
    """A job key if there is one; a fresh one where all ranks are on this host."""
    epoch = int(meeting.from_first("epoch", lambda: str(secrets.randbits(40))))
    options = {"host": _host(all_here), "epoch": epoch, **options}
    if os.environ.get("WEFT_KEY_FILE"):
        options.setdefault("key_file", os.environ["WEFT_KEY_FILE"])
    try:
        return Communicator(rank, size, **options)
    except NotFoundError:
        if not all_here:
            raise
    key = meeting.from_first("key", lambda: secrets.token_bytes(32).hex())
    return Communicator(rank, size, key=bytes.fromhex(key), **options)


def meet(store, rank, size, timeout, **options):
    """A communicator of all ranks. timeout: in seconds. options: of Communicator."""
    meeting = _Meeting(store, rank, size)
    places = meeting.exchange("place", _place())
    comm = _open(meeting, rank, size, len(set(places)) == 1, options)
    try:
        comm.join(meeting.exchange("address", comm.address), timeout)
    except BaseException:
        comm.close()
        raise
    return comm
