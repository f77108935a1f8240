"""libweft.so, found and opened; and its status codes as exceptions."""

import os
import pathlib

import cffi

from . import _cdef

SONAME = "libweft.so.0"

ffi = cffi.FFI()
ffi.cdef(_cdef.SOURCE)


def _candidates():
    """WEFT_LIBRARY alone where it is set; else the build beside this source, else the system's."""
    named = os.environ.get("WEFT_LIBRARY")
    if named:
        return [named]
    built = pathlib.Path(__file__).resolve().parents[2] / "build" / SONAME
    return ([str(built)] if built.exists() else []) + [SONAME]


def _open():
    reasons = []
    for name in _candidates():
        try:
            return ffi.dlopen(name)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        "libweft.so is not found: build it with `make`, install it with `make install`, or name it "
        "in the environment variable WEFT_LIBRARY (" + "; ".join(reasons) + ")"
    )


lib = _open()


class Error(Exception):
    """Something failed. The text says what, and what to do about it.

    status: its name in C, such as "WEFT_PEER". result: what became of the operation, where one
    was under way (weft.Result), else None.
    """

    status = "WEFT_STATE"
    result = None


def _kind(name, status, *bases):
    return type(name, (Error, *bases), {"status": status, "__module__": "weft"})


AgainError = _kind("AgainError", "WEFT_AGAIN")
InvalidError = _kind("InvalidError", "WEFT_INVALID", ValueError)
StateError = _kind("StateError", "WEFT_STATE")
NoMemoryError = _kind("NoMemoryError", "WEFT_NOMEM", MemoryError)
ProtocolError = _kind("ProtocolError", "WEFT_PROTO")
NotFoundError = _kind("NotFoundError", "WEFT_NOTFOUND", LookupError)
ExistsError = _kind("ExistsError", "WEFT_EXISTS")
SystemCallError = _kind("SystemCallError", "WEFT_IO", OSError)
DataError = _kind("DataError", "WEFT_DATA", ValueError)
PeerError = _kind("PeerError", "WEFT_PEER", ConnectionError)
WaitTimeoutError = _kind("WaitTimeoutError", "WEFT_TIMEOUT", TimeoutError)
UnsupportedError = _kind("UnsupportedError", "WEFT_UNSUPPORTED")

_kinds = [
    AgainError,
    InvalidError,
    StateError,
    NoMemoryError,
    ProtocolError,
    NotFoundError,
    ExistsError,
    SystemCallError,
    DataError,
    PeerError,
    WaitTimeoutError,
    UnsupportedError,
]
_by_status = {getattr(lib, error.status): error for error in _kinds}


def text(pointer):
    return ffi.string(pointer).decode("utf-8", "replace")


def error_of(status, words):
    """The exception for a status other than WEFT_OK; words from weft_ps_error, or ""."""
    kind = _by_status.get(status, Error)
    return kind(words or text(lib.weft_status_text(status)))
