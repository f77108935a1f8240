"""Rendezvous of the ranks of a process group, through the group's store, which PyTorch provides."""

import datetime
import os
import secrets
import socket
import time

from .._library import Error, NotFoundError, WaitTimeoutError
from ..coll import Communicator

_boxed = None  # the communicator that has the environment's box

PART_S = 0.25  # seconds of a wait: inside the store, Python does not handle Ctrl-C


def _place():
    """Equal for processes that can use loopback to each other: same kernel, same network namespace."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip() + " " + os.readlink("/proc/self/ns/net")


class _Meeting:
    """One rendezvous of several in a store, when groups are made again: no rank enters the next one
    before all have entered this one."""

    def __init__(self, store, rank, size, timeout):
        self._store, self._rank, self._size, self.timeout = store, rank, size, timeout
        self._end = time.monotonic() + timeout
        self._round = 0  # sizes differed in each one before
        self._start = 0  # ranks that entered a rendezvous of this round before all of this one

    def enter(self):
        """Ranks meet in the order in which they come. The first rank of each rendezvous sets its size, with
        which every other one compares its own: otherwise ranks would wait for some that do not exist."""
        while self._store.add(f"weft/{self._round}/wrong", 0) > 0:
            self._round += 1
        self._look_back()
        came = self._store.add(f"weft/{self._round}/came", 1) - 1
        self._store.set(f"weft/{self._round}/here/{self._rank}", "1")
        while came != self._start:
            first, size = [int(word) for word in self._get("size", "the first rank").split()]
            if came < self._start + size:
                break
            self._start += size
        else:
            first, size = self._rank, self._size
            self._store.set(self._key("size"), f"{first} {size}")
        if size != self._size:
            text = (
                f"rank {self._rank} has a group of {self._size} ranks, and rank {first} one of {size}; "
                "start all ranks with the same world size, or use a new store"
            )
            self._store.set(f"weft/{self._round}/why", f"{size} {self._size} {text}")
            self._store.add(f"weft/{self._round}/wrong", 1)
            raise Error(text)

    def _look_back(self):
        """Raise the error of the last round if this rank has not been in it: it was waited for there."""
        if self._round == 0:
            return
        last = f"weft/{self._round - 1}"
        *sizes, text = self._store.get(f"{last}/why").decode().split(" ", 2)
        here = f"{last}/here/{self._rank}"
        if str(self._size) in sizes and not self._is_there(here, 0.001):
            self._store.set(here, "1")
            self._round -= 1  # it gives up there
            raise Error(text)

    def left(self):
        """Seconds."""
        return max(0.001, self._end - time.monotonic())

    def is_over(self):
        return self._end <= time.monotonic()

    def exchange(self, what, value):
        self._store.set(self._key(f"{what}/{self._rank}"), value)
        return [self._get(f"{what}/{i}", f"rank {i}") for i in range(self._size)]

    def from_first(self, what, make, instead=None):
        """A value created by rank 0, at all ranks; None if rank 0 has exchanged `instead` without creating it."""
        if self._rank == 0:
            self._store.set(self._key(what), make())
        return self._get(what, "rank 0", None if instead is None else f"{instead}/0")

    def is_from_first(self, what):
        """Whether rank 0 has created the value; after an exchange that follows it."""
        return self._is_there(self._key(what), 0.001)

    def give_up(self, why):
        """Report a failure, so that other ranks need not wait for their timeout. The first reason is kept."""
        try:
            if not self._is_there(self._key("over"), 0.001):
                self._store.set(self._key("over"), f"rank {self._rank} gave up: {why}")
        except (Error, RuntimeError):
            pass  # without a store, the others fail as well

    def look(self):
        """Raise the failure that another rank has reported."""
        if self._is_there(self._key("over"), 0.001):
            raise Error(self._store.get(self._key("over")).decode())
        why = f"weft/{self._round}/why"  # sizes differ; other ranks may be in another rendezvous
        if self._is_there(why, 0.001):
            raise Error(self._store.get(why).decode().split(" ", 2)[2])

    def _key(self, what):
        return f"weft/{self._round}/{self._start}/{what}"

    def _get(self, what, who, instead=None):
        while not self._is_there(self._key(what), min(PART_S, self.left())):
            if instead is not None and self._is_there(self._key(instead), 0.001):
                if self._is_there(self._key(what), 0.001):  # it came before `instead`
                    break
                return None
            if self.is_over():
                raise WaitTimeoutError(
                    f"{who} has not entered the rendezvous within {self.timeout:g} s, or it ended "
                    f"there (its {what.split('/')[0]} is not in the store)"
                )
            self.look()
        return self._store.get(self._key(what)).decode()

    def _is_there(self, key, seconds):
        end = time.monotonic() + seconds
        try:
            if not hasattr(self._store, "check"):  # PyTorch 1.13
                self._store.wait([key], datetime.timedelta(seconds=seconds))
                return True
            # A wait that times out is a warning of PyTorch's on standard error.
            while not self._store.check([key]):
                if time.monotonic() >= end:
                    return False
                time.sleep(0.005)
            return True
        except RuntimeError as error:
            if "timeout" in str(error).lower():
                return False
            raise Error(f"the store of the process group failed: {error}") from None


def _host(all_here):
    """The address at which other ranks reach this one."""
    named = os.environ.get("WEFT_HOST")
    if named:
        return named
    if all_here:
        return "127.0.0.1"
    master = os.environ.get("MASTER_ADDR")
    if not master:
        raise Error(
            "the ranks are on several hosts, and MASTER_ADDR is not set to determine which address they "
            "reach this one by; set WEFT_HOST to an address of this host"
        )
    family, _, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
        probe.connect(address)
        return probe.getsockname()[0]


def _box():
    """The aggregation box that the environment names, as options of Communicator. It serves one at a time,
    so only the first of those that are open has it."""
    if _boxed is not None and _boxed._comm is not None:
        return {}
    place = os.environ.get("WEFT_BOX")
    options = {"box": place} if place else {}
    for name in ("insecure", "float32", "exponent", "block_float", "job", "slots", "bytes_min", "timeout_ns", "retry_ns"):
        value = os.environ.get(f"WEFT_BOX_{name.upper()}")
        if place and value:
            try:
                options[f"box_{name}"] = int(value)
            except ValueError:
                raise Error(f"WEFT_BOX_{name.upper()} is {value!r}; it must be a number") from None
    return options


def _plan():
    """The plan for all_reduce that the environment names, as options of Communicator."""
    form, rate = os.environ.get("WEFT_PLAN"), os.environ.get("WEFT_LINK_BPS")
    options = {"plan": form} if form else {}
    if form and rate:
        try:
            options["link_bps"] = int(rate)
        except ValueError:
            raise Error(f"WEFT_LINK_BPS is {rate!r}; it must be a number") from None
    return options


def _open(meeting, rank, size, all_here, options):
    """With the job key if there is one; a new one if all ranks are on this host. -> Communicator, whether it is new"""
    epoch = int(meeting.from_first("epoch", lambda: str(secrets.randbits(40))))
    options = {"host": _host(all_here), "epoch": epoch, **_plan(), **options}
    if os.environ.get("WEFT_KEY_FILE"):
        options.setdefault("key_file", os.environ["WEFT_KEY_FILE"])
    try:
        return Communicator(rank, size, **options), False
    except NotFoundError as error:
        if not all_here or os.environ.get("WEFT_KEY_FILE") or os.environ.get("WEFT_JOB_KEY"):
            raise
        none = error
    key = meeting.from_first("key", lambda: secrets.token_bytes(32).hex(), "address")
    if key is None:
        raise Error(f"rank 0 has a job key, and rank {rank} has none; give it to all ranks, or to none: {none}")
    return Communicator(rank, size, key=bytes.fromhex(key), **options), True


def _join(comm, meeting, addresses):
    while True:
        try:
            return comm.join(addresses, min(PART_S, meeting.left()))
        except WaitTimeoutError as error:
            if meeting.is_over():
                raise WaitTimeoutError(
                    f"after {meeting.timeout:g} s {str(error).partition(' s ')[2]}"
                ) from None
        meeting.look()


def meet(store, rank, size, timeout, *, world=False, **options):
    """A communicator of all ranks. timeout: in seconds. options: of Communicator.

    world: they are all ranks of the job, so its aggregation box is theirs (WEFT_BOX).
    """
    global _boxed
    box = _box() if world else {}
    options = {**box, **options}
    meeting = _Meeting(store, rank, size, timeout)
    comm = None
    try:
        meeting.enter()
        places = meeting.exchange("place", _place())
        all_here = len(set(places)) == 1
        comm, new_key = _open(meeting, rank, size, all_here, options)
        addresses = meeting.exchange("address", comm.address)
        if all_here and not new_key and meeting.is_from_first("key"):
            raise Error(f"rank {rank} has a job key, and rank 0 has none; give it to all ranks, or to none")
        _join(comm, meeting, addresses)
        if box:
            _boxed = comm
    except BaseException as error:
        meeting.give_up(str(error) or type(error).__name__)
        if comm is not None:
            comm.close()
        raise
    return comm
