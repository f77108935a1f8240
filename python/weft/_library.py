"""libweft.so, found and opened; and its status codes as exceptions."""

import os
import pathlib

import cffi

from . import _cdef

SONAME = "libweft.so.0"

ffi = cffi.FFI()
ffi.cdef(_cdef.SOURCE)


def _choice():
    """The library to open, and the remedy if it is not the right one.

    If a library is bundled, no other is searched: a package that loads one library now and another later is hard
    to diagnose.
    """
    named = os.environ.get("WEFT_LIBRARY")
    if named:
        return named, "correct the environment variable WEFT_LIBRARY, which names it, or unset it"
    folder = pathlib.Path(__file__).resolve().parent
    bundled = folder / SONAME
    if bundled.exists():
        return str(bundled), "install the Python package again: pip install --force-reinstall"
    built = folder.parents[1] / "build" / SONAME
    if built.exists():
        return str(built), "build it again with `make`"
    return SONAME, (
        "in weft's sources, `pip install .` installs this package with the library in it, `make install` the "
        "library for all programs; or name it in the environment variable WEFT_LIBRARY"
    )


def text(pointer):
    return ffi.string(pointer).decode("utf-8", "replace")


def _open():
    name, remedy = _choice()
    try:
        library = ffi.dlopen(name)
    except OSError as error:
        reason = str(error).partition(".  Additionally,")[0]  # where cffi searched last
        missing = f"{name}: cannot open shared object file: No such file" in reason  # not a dependency
        what = "is not found" if missing else "does not load"
        raise ImportError(f"libweft.so {what}: {reason}; {remedy}") from None
    try:
        version = text(library.weft_version())
    except AttributeError:  # a release before weft_version existed
        version = "of an earlier release"
    if version != _cdef.VERSION:
        raise ImportError(
            f"the library {name} is weft {version}, but this Python package is weft {_cdef.VERSION}, and "
            f"they must be of one release; {remedy}"
        )
    return library


lib = _open()


class Error(Exception):
    """An operation failed. The text has the cause and the remedy.

    status: its name in C, such as "WEFT_PEER". result: the result of the operation, if one was in
    progress (weft.Result), else None.
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
Dropped = _kind("Dropped", "WEFT_DROPPED")  # never raised: Result.dropped

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
    Dropped,
]
_by_status = {getattr(lib, error.status): error for error in _kinds}


def error_of(status, words):
    """The exception for a status other than WEFT_OK; words: the text of weft_ps_error, or ""."""
    kind = _by_status.get(status, Error)
    return kind(words or text(lib.weft_status_text(status)))
