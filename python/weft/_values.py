"""Conversion of arguments and fields of C structs: seconds, fractions, text, the job key."""

import collections
import math
import threading
import time

from ._library import Error, InvalidError, WaitTimeoutError, ffi, lib

NEVER_NS = 2**64 - 1
SLICE_NS = 100_000_000  # interval at which a wait checks for Ctrl-C

SECURITY = {
    "auth": lib.WEFT_TRANSPORT_AUTH,
    "seal": lib.WEFT_TRANSPORT_SEAL,
    "none": lib.WEFT_TRANSPORT_NONE,
}


def ns_of(seconds, what):
    if seconds is None:
        return NEVER_NS
    if not 0 <= seconds < 1e9:
        raise InvalidError(f"{what} is {seconds}; it must be a number of seconds, or None")
    return int(seconds * 1e9)


def patiently(patience_ns, call, slice_ns=SLICE_NS):
    """Repeat call(part_ns) while it times out; between the parts Ctrl-C is handled."""
    begin_ns = time.monotonic_ns()
    while True:
        left_ns = max(0, patience_ns - (time.monotonic_ns() - begin_ns))
        try:
            return call(min(slice_ns, left_ns))
        except WaitTimeoutError:
            if patience_ns != NEVER_NS and time.monotonic_ns() - begin_ns >= patience_ns:
                raise


class DroppedOperations:
    """Operations whose objects were dropped before they ended. Several threads may collect them.

    A thread takes an operation out before it asks the library about it, so that no two threads have the same one.
    end(number) asks: it returns True if the operation has ended, False if it is in progress, or raises its Error.
    """

    def __init__(self):
        self.ended = 0  # so many have ended
        self._numbers = collections.deque()
        self._out = set()  # those that threads have taken out
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # when one is taken out, or is back or has ended

    def add(self, number):
        """Takes no lock: __del__ calls it, which may run inside any other function."""
        self._numbers.append(number)

    def collect(self, end):
        """Call end for each, except those that other threads have."""
        for _ in range(len(self._numbers)):
            self._end_one(end, lambda: True)

    def collect_one(self, end, before):
        """Call end, which waits, for the oldest; or wait for other threads that have the last ones. -> False if
        there is none

        before: `ended` when one was needed; nothing is called if more have ended.
        """

        def is_needed():
            while self.ended == before and self._out and not self._numbers:
                self._changed.wait(SLICE_NS / 1e9)
            return self.ended == before

        return self._end_one(end, is_needed)

    def _end_one(self, end, is_needed):
        """-> whether one has ended, or is not needed"""
        number, ended = None, False
        try:  # Ctrl-C may arrive at any line
            with self._lock:
                if not is_needed():
                    return True
                if not self._numbers:
                    return False
                number = self._numbers[0]
                self._out.add(number)
                self._numbers.popleft()
            ended = end(number)
        except Error:
            ended = True
            raise
        finally:
            if number is not None:
                self._put_back(number, ended)
        return ended

    def _put_back(self, number, ended):
        with self._lock:
            if ended:
                self.ended += 1
            elif number not in self._numbers:  # it is in progress, also after Ctrl-C
                self._numbers.append(number)
            self._out.discard(number)
            self._changed.notify_all()


def ppm_of(bound):
    ppm = int(round(bound * 1e6)) if 0 <= bound < 1 else -1
    if not 0 <= ppm < 1_000_000:
        raise InvalidError(f"bound is {bound}; it is the fraction that may be lost, 0 <= bound < 1")
    return ppm


def norm_of(norm):
    if not 0 <= norm < math.inf:
        raise InvalidError(f"norm is {norm}; it must be finite and not negative, or None")
    return float(norm)


def c_text(text_bytes):
    return ffi.new("char[]", text_bytes)


def set_fields(struct, values, keep):
    """Set fields by name; an unknown name is a TypeError that lists the fields."""
    fields = dict(ffi.typeof(struct).item.fields)
    for name, value in values.items():
        if name not in fields or name == "size":
            known = ", ".join(field for field in fields if field != "size")
            raise TypeError(f"{name} is not known; there are {known}")
        if isinstance(value, (str, bytes)):
            value = c_text(value.encode() if isinstance(value, str) else value)
            keep.append(value)
        try:
            setattr(struct, name, value)
        except OverflowError as error:
            raise InvalidError(f"{name} is {value}: {error}") from None


def set_security(struct, security, key, keep):
    """The fields security and key of a configuration."""
    if security not in SECURITY:
        raise InvalidError(f"security is {security!r}; choose one of {', '.join(SECURITY)}")
    struct.security = SECURITY[security]
    if key is not None:
        if not isinstance(key, (bytes, bytearray)) or len(key) != 32:
            raise TypeError("key must be 32 bytes; for a file, use key_file")
        keep.append(ffi.new("uint8_t[32]", bytes(key)))
        struct.key = keep[-1]
