"""Conversion of arguments and fields of C structs: seconds, fractions, text, the job key."""

import math
import time

from ._library import InvalidError, WaitTimeoutError, ffi, lib

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
