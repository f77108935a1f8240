"""weft for Python: a worker of the parameter server, with numpy arrays.

    import numpy as np, weft

    with weft.connect("127.0.0.1:7700", key_file="job.key") as ps:
        table = ps.table(0, dim=16, optimizer="adagrad")
        ids = np.array([3, 14, 15], dtype=np.uint64)
        rows = table.pull(ids)
        table.push(ids, np.ones((3, 16), dtype=np.float32))
        table.clock()

See docs/PYTHON.md; include/weft/ps.h is the contract.
"""

from ._cdef import VERSION as __version__
from ._library import (
    AgainError,
    DataError,
    Error,
    ExistsError,
    InvalidError,
    NoMemoryError,
    NotFoundError,
    PeerError,
    ProtocolError,
    StateError,
    SystemCallError,
    UnsupportedError,
    WaitTimeoutError,
)
from .ps import PS, Latency, Op, Result, Table, connect

__all__ = [
    "PS",
    "AgainError",
    "DataError",
    "Error",
    "ExistsError",
    "InvalidError",
    "Latency",
    "NoMemoryError",
    "NotFoundError",
    "Op",
    "PeerError",
    "ProtocolError",
    "Result",
    "StateError",
    "SystemCallError",
    "Table",
    "UnsupportedError",
    "WaitTimeoutError",
    "connect",
]
