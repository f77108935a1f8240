"""The parameter server for Python: <weft/ps.h> with numpy arrays, used in place.

The header defines shapes and semantics; docs/PYTHON.md lists the differences.
Nothing here copies rows: an array that cannot be used in place is refused with a TypeError.
"""

import operator
import threading
from dataclasses import dataclass, field

import numpy as np

from ._library import AgainError, Dropped, Error, InvalidError, WaitTimeoutError, error_of, ffi, lib, text
from ._values import (
    NEVER_NS,
    SLICE_NS,
    DroppedOperations,
    c_text,
    norm_of,
    ns_of,
    patiently,
    ppm_of,
    set_fields,
    set_security,
)

LAST_VALUES_MAX = 65_536  # last values that a table caches by default

NOTHING = np.zeros(0, dtype=np.int64)
NOTHING.flags.writeable = False


@dataclass(frozen=True)
class Latency:
    """The latency components of one request, in nanoseconds. See struct weft_ps_latency."""

    w_proc_ns: int
    w_queue_ns: int
    ps_proc_ns: int
    ps_queue_ns: int
    n_tx_ns: int
    ps_overlap_ns: int
    ps_wait_ns: int


@dataclass(frozen=True)
class Result:
    """The outcome of a push or a pull. See struct weft_result."""

    elements_sent: int
    elements_delivered: int
    rows_missed: int
    chunks_refused: int
    requests: int
    requests_short: int
    clock: int
    shard: int
    latency: Latency
    requests_dropped: int
    # (rows_missed,) int64: the rows of the operation that did not arrive whole, ascending; of several
    # lists, counted over all of them in their order. ids[result.missed] are their ids.
    missed: np.ndarray = field(compare=False, repr=False)

    @property
    def dropped(self):
        """The scheduler dropped this push, or a server refused it as too late (WEFT_DROPPED): nothing of
        its `missed` rows was applied. Pull again before the next step."""
        return self.requests_dropped > 0

    def plus(self, later, at):
        """Add the result of a later part of the same list, which begins at row `at`."""
        return Result(
            self.elements_sent + later.elements_sent,
            self.elements_delivered + later.elements_delivered,
            self.rows_missed + later.rows_missed,
            self.chunks_refused + later.chunks_refused,
            self.requests + later.requests,
            self.requests_short + later.requests_short,
            min(self.clock, later.clock),
            later.shard,
            later.latency,
            self.requests_dropped + later.requests_dropped,
            np.concatenate([self.missed, later.missed + at]),
        )


def _fields(struct, kind):
    """The fields of a C struct that a dataclass names."""
    names = [name for name in kind.__dataclass_fields__ if name not in ("latency", "missed")]
    return {name: getattr(struct, name) for name in names}


def _result(struct, missed):
    latency = Latency(**_fields(struct.latency, Latency))
    return Result(**_fields(struct, Result), latency=latency, missed=missed)


def _missed(ps):
    """The rows missed by the operation that has just ended."""
    rows = lib.weft_result_missed(ps, ffi.NULL, 0)
    bits = np.zeros((rows + 63) // 64, dtype="<u8")
    lib.weft_result_missed(ps, _pointer_to("uint64_t *", bits), len(bits))
    return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))


def _ids_of(ids):
    """ids (n,) in memory. int64, which numpy makes of Python integers, is reinterpreted as uint64."""
    if not isinstance(ids, np.ndarray):
        raise TypeError(f"ids is a {type(ids).__name__}; make it np.asarray(ids, dtype=np.uint64)")
    if ids.dtype not in (np.uint64, np.int64):
        raise TypeError(f"ids is of {ids.dtype}; make it ids.astype(np.uint64)")
    if ids.ndim != 1 or not ids.flags.c_contiguous:
        raise TypeError(
            f"ids has shape {ids.shape}{'' if ids.flags.c_contiguous else ', not contiguous'}; "
            "make it np.ascontiguousarray(ids.ravel())"
        )
    return ids


def _floats_of(values, what, writable):
    """A slice of a dense table's vector, of any shape."""
    if not isinstance(values, np.ndarray):
        raise TypeError(
            f"{what} is a {type(values).__name__}; make it np.asarray({what}, dtype=np.float32)"
        )
    if values.dtype != np.float32:
        raise TypeError(f"{what} is of {values.dtype}; make it {what}.astype(np.float32)")
    if not values.flags.c_contiguous:
        raise TypeError(f"{what} is not contiguous; make it np.ascontiguousarray({what})")
    if writable and not values.flags.writeable:
        raise TypeError(f"{what} is read-only; the rows are written into it")
    return values


def _rows_of(rows, n, dim, what, writable):
    """Rows (n, dim) in memory."""
    rows = _floats_of(rows, what, writable)
    if rows.shape != (n, dim) and not (dim == 1 and rows.shape == (n,)):
        raise TypeError(f"{what} has shape {rows.shape}; {n} ids and dim {dim} require {(n, dim)}")
    return rows


def _count_of(value, what):
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a {type(value).__name__}; it must be an integer") from None
    if not 0 <= number < 2**63:
        raise InvalidError(f"{what} is {number}; it counts rows of the table, from 0")
    return number


def _pointer_to(kind, array):
    return ffi.cast(kind, array.ctypes.data)


class Op:
    """A push or a pull in progress; completed by wait() or done().

    The arrays belong to it until then, even if this object is dropped; a failure of one that was
    dropped is raised by the next push or pull.
    """

    def __init__(self, ps, handle, value):
        self._ps = ps
        self._handle = handle
        self._value = value  # the value that wait returns; None = the Result
        self.result = None

    def wait(self, timeout=None):
        """Wait, at most `timeout` seconds. Returns the rows of a pull, the Result of a push."""
        if self._handle:
            end_ns = ns_of(timeout, "timeout")
            self._end(self._ps._wait(self._handle, end_ns))
        return self.result if self._value is None else self._value

    def done(self):
        """True if it is complete; does not block. Raises its error."""
        if self._handle:
            ended = self._ps._test(self._handle)
            if ended is None:
                return False
            self._end(ended)
        return True

    def _end(self, ended):
        error, self.result = ended
        self._handle = 0
        if error is not None:
            raise error

    def __del__(self):
        if getattr(self, "_handle", 0):
            self._ps._drop(self._handle)


class Table:
    """A table as this worker opened it (weft_table_open); made by PS.table."""

    def __init__(self, ps, table, number, name, dim, length):
        self._ps = ps
        self._table = table
        self.number = number
        self.name = name
        self.dim = dim
        self.length = length  # floats of a dense table's vector; 0 = sparse

    def push_async(self, ids, rows, bound=0.0, deadline=None):
        """Begin to add gradients to rows: ids (n,) uint64, rows (n, dim) float32. -> Op"""
        return self._begin(self._ids_piece(ids, rows, "rows", False), False, bound, deadline)

    def pull_async(self, ids, out=None, bound=0.0, deadline=None):
        """Begin to fetch rows, into `out` (n, dim) float32 or a new array. -> Op

        Rows lost within the bound keep their value in `out`; in a new array they have the last
        value pulled of the row, or its initial value.
        """
        return self._begin(self._ids_piece(ids, out, "out", True), True, bound, deadline, fill=out is None)

    def push(self, ids, rows, bound=0.0, deadline=None):
        """Add gradients to rows and wait. -> Result"""
        return self._in_parts(self._ids_piece(ids, rows, "rows", False), False, bound, deadline)

    def pull(self, ids, out=None, bound=0.0, deadline=None):
        """Fetch rows, as pull_async, and wait. -> out, or a new array (n, dim)

        The Result is in `last_result`.
        """
        piece = self._ids_piece(ids, out, "out", True)
        self.last_result = self._in_parts(piece, True, bound, deadline, fill=out is None)
        return piece.rows

    def push_range(self, values, first=0, bound=0.0, deadline=None):
        """Add gradients to a slice of a dense table, which begins at row `first`, and wait.

        values: float32, (floats,) or (n, dim): whole rows, up to the vector's end. -> Result
        """
        return self._in_parts(self._range_piece(first, values, "values", False), False, bound, deadline)

    def pull_range(self, first=0, n=None, out=None, bound=0.0, deadline=None):
        """Fetch rows first .. first + n - 1 of a dense table (n None: to the end), and wait.

        -> out, or a new array (floats,). The Result is in `last_result`.
        """
        piece = self._range_piece(first, out, "out", True, n)
        self.last_result = self._in_parts(piece, True, bound, deadline, fill=out is None)
        return piece.rows

    def push_range_async(self, values, first=0, bound=0.0, deadline=None):
        """Begin a push_range. -> Op"""
        return self._begin(self._range_piece(first, values, "values", False), False, bound, deadline)

    def pull_range_async(self, first=0, n=None, out=None, bound=0.0, deadline=None):
        """Begin a pull_range. -> Op"""
        piece = self._range_piece(first, out, "out", True, n)
        return self._begin(piece, True, bound, deadline, fill=out is None)

    def residuals(self):
        """The gradients kept by error feedback (feedback_rows). -> ids (n,), rows (n, dim)

        A push of zeros for these ids with bound 0 sends them.
        """
        with self._ps._lock:
            self._ps._alive()
            n = lib.weft_table_residuals(self._table, ffi.NULL, ffi.NULL, 0)
            ids, rows = np.zeros(n, np.uint64), np.zeros((n, self.dim), np.float32)
            lib.weft_table_residuals(
                self._table, _pointer_to("uint64_t *", ids), _pointer_to("float *", rows), n
            )
        return ids, rows

    def clock(self):
        """End this worker's clock, at the end of its step."""
        patiently(NEVER_NS, lambda part_ns: self._ps._call(lib.weft_clock, self._table))

    @property
    def clocks_ended(self):
        self._ps._alive()
        return lib.weft_clock_ended(self._table)

    def __repr__(self):
        return f"<weft.Table {self.name}, dim {self.dim}>"

    # ---- arguments: arrays, checked ----

    def _ids_piece(self, ids, rows, what, writable):
        ids = _ids_of(ids)
        if rows is None and writable:
            rows = np.zeros((len(ids), self.dim), dtype=np.float32)
        return _Piece(self, ids, 0, _rows_of(rows, len(ids), self.dim, what, writable), len(ids))

    def _range_piece(self, first, values, what, writable, n=None):
        """A slice has whole rows, except at the vector's end."""
        if not self.length:
            raise TypeError(f"{self!r} is sparse; only tables with a length have slices")
        first = _count_of(first, "first")
        left = max(0, self.length - first * self.dim)
        floats = left if n is None else min(left, _count_of(n, "n") * self.dim)
        if values is None and writable:
            values = np.zeros(floats, dtype=np.float32)
        values = _floats_of(values, what, writable)
        if n is not None and values.size != floats:
            raise TypeError(f"{what} has {values.size} floats; {n} rows there are {floats}")
        if values.size > left or (values.size % self.dim and values.size != left):
            raise TypeError(
                f"{what} has {values.size} floats from row {first} on; a slice of this table has "
                f"whole rows of {self.dim} floats, or reaches its end at {self.length}"
            )
        return _Piece(self, None, first, values, -(-values.size // self.dim))

    def _piece(self, where, rows, writable):
        """One of several lists: `where` is ids, or the first row of a slice."""
        if isinstance(where, (int, np.integer)):
            return self._range_piece(where, rows, "out" if writable else "values", writable)
        return self._ids_piece(where, rows, "out" if writable else "rows", writable)

    def _begin(self, piece, is_pull, bound, deadline, **how):
        value = piece.rows if is_pull else None
        return self._ps._begin_lists([piece], is_pull, value, bound=bound, deadline=deadline, **how)

    def _in_parts(self, piece, is_pull, bound, deadline, **how):
        most = self._ps.rows_max
        total = None
        for at in range(0, max(piece.n, 1), most):
            part = piece.part(at, most)
            op = self._ps._begin_lists([part], is_pull, None, bound=bound, deadline=deadline, **how)
            total = op.wait() if total is None else total.plus(op.wait(), at)
        return total


@dataclass(frozen=True)
class _Piece:
    """One table's part of an operation, its arrays checked."""

    table: Table
    ids: np.ndarray  # or None: a slice of a dense table
    first: int
    rows: np.ndarray
    n: int

    def part(self, at, most):
        if self.n <= most:
            return self
        n = min(most, self.n - at)
        if self.ids is not None:
            return _Piece(self.table, self.ids[at : at + n], 0, self.rows[at : at + n], n)
        dim = self.table.dim
        values = self.rows.reshape(-1)[at * dim : (at + n) * dim]
        return _Piece(self.table, None, self.first + at, values, n)

    def write(self, struct, is_pull):
        struct.table = self.table._table
        struct.ids = ffi.NULL if self.ids is None else _pointer_to("uint64_t *", self.ids)
        struct.first = self.first
        rows = _pointer_to("float *", self.rows)
        if is_pull:
            struct.rows_p = rows
        else:
            struct.rows = rows
        struct.n = self.n


class PS:
    """One worker's connections to all shards; made by weft.connect. A context manager."""

    def __init__(self, ps, rows_max, patience_ns):
        self._ps = ps
        self._patience_ns = patience_ns  # for replies to table()
        self._lock = threading.Lock()  # one thread at a time may call the library
        self._lent = {}  # arrays of operations in progress
        self._dropped = DroppedOperations()
        self.rows_max = rows_max
        self.worker = lib.weft_ps_worker(ps)
        self.workers = lib.weft_ps_workers(ps)
        self.shards = lib.weft_ps_shards(ps)
        # "http://127.0.0.1:41234/metrics", or None; the reason is on standard error.
        self.metrics = text(lib.weft_ps_metrics(ps)) or None

    def table(self, number=0, dim=1, *, name=None, optimizer="sgd", consistency="bsp", **options):
        """Open table `number`, or join it. All workers must pass the same options.

        options: further fields of struct weft_table_options, such as learning_rate; defaults are
        those of the optimizer. average="contributors" divides the sum of a row's gradients by their
        number in the clock, "workers" by the number of workers, "none" not at all.
        value_type="bf16" sends gradients with half the bytes, "int8" with a quarter, and
        pull_value_type="bf16" weights with half.
        """
        keep = [text.encode() for text in (optimizer, consistency, name or f"table {number}")]
        struct = ffi.new("struct weft_table_options *")
        lib.weft_table_options_init(struct, ffi.sizeof("struct weft_table_options"), c_text(keep[0]))
        strings = [c_text(one) for one in keep]
        struct.optimizer, struct.consistency, struct.name = strings
        options.setdefault("last_values_max", LAST_VALUES_MAX)
        set_fields(struct, {"number": number, "dim": dim, **options}, strings)
        table = ffi.new("struct weft_ps_table **")
        patiently(
            self._patience_ns,
            lambda part_ns: self._call(lib.weft_table_open, self._pointer(), struct, table),
        )
        length = options.get("length", 0)
        return Table(self, table[0], number, name or f"table {number}", dim, length)

    def push(self, lists, bound=0.0, deadline=None, norm=None):
        """Add gradients to several tables in one operation, and wait. -> Result

        lists: of (table, ids, rows), or (table, first, values) for a slice of a dense table.
        Their rows together are at most rows_max. norm: their Euclidean norm for the job's scheduler;
        None = computed from the values if needed.
        """
        return self.push_async(lists, bound, deadline, norm).wait()

    def pull(self, lists, bound=0.0, deadline=None):
        """Fetch rows of several tables in one operation, and wait. -> list of arrays

        lists: of (table, ids) or (table, ids, out); for a slice of a dense table (table, first)
        to its end, or (table, first, out). The Result is in `last_result`. Of the lists from number
        63 on, counted from 0, all have an `out`, or none.
        """
        op = self.pull_async(lists, bound, deadline)
        rows = op.wait()
        self.last_result = op.result
        return rows

    def push_async(self, lists, bound=0.0, deadline=None, norm=None):
        """Begin a push to several tables. -> Op"""
        pieces = [_table_of(table)._piece(where, rows, False) for table, where, rows in lists]
        return self._begin_lists(pieces, False, None, bound=bound, deadline=deadline, norm=norm)

    def pull_async(self, lists, bound=0.0, deadline=None):
        """Begin a pull of several tables. -> Op, whose wait() returns the list of arrays"""
        lists = list(lists)
        pieces = [
            _table_of(table)._piece(where, out[0] if out else None, True)
            for table, where, *out in lists
        ]
        value = [piece.rows for piece in pieces]
        new = [not out or out[0] is None for _, _, *out in lists]
        if len(set(new[63:])) > 1:
            raise InvalidError(
                "some lists from number 63 on (from 0) have an array; give each of them one, or none"
            )
        fill = sum(1 << i for i, is_new in enumerate(new[:64]) if is_new)
        return self._begin_lists(pieces, True, value, bound=bound, deadline=deadline, fill=fill)

    def checkpoint(self):
        """Request a checkpoint of the servers. -> Op, whose wait() returns when it is on the disk

        It contains every operation that has completed before. With a "bsp" table it is cut at the end of a clock,
        so continue meanwhile, or let all workers flush. If the shards are on several servers, flushing is not
        sufficient: every worker must end two more clocks, in any mode. If a server makes no checkpoint, the
        error has the reason.
        """
        self._reap()
        handle = ffi.new("uint64_t *")
        self._call(lib.weft_ps_checkpoint, self._pointer(), handle)
        self._lent[handle[0]] = None
        return Op(self, handle[0], None)

    def flush(self, timeout=None):
        """Wait until every push and every clock has arrived, at most `timeout` seconds."""
        patiently(
            ns_of(timeout, "timeout"),
            lambda part_ns: self._call(lib.weft_ps_flush, self._pointer(), part_ns),
        )

    def progress(self, timeout=0.0):
        """Make progress, for programs that compute in pieces with operations in progress."""
        with self._lock:
            lib.weft_ps_progress(self._pointer(), ns_of(timeout, "timeout"))

    def idle(self):
        """Announce to the servers that this worker will not process packets for a while, because it
        computes."""
        with self._lock:
            lib.weft_ps_idle(self._pointer())

    def counters(self):
        """What was sent and lost since connect, as a dict. See struct weft_ps_counters."""
        struct = ffi.new("struct weft_ps_counters *")
        struct.size = ffi.sizeof("struct weft_ps_counters")
        with self._lock:
            lib.weft_ps_counters_get(self._pointer(), struct)
        names = [name for name, _ in ffi.typeof("struct weft_ps_counters").fields]
        return {name: getattr(struct, name) for name in names if name != "size"}

    def close(self):
        """Disconnect without a flush. Tables and operations end. May be called again.

        If all its pushes and clocks are acknowledged, the coordinator is notified that this worker has
        finished.
        """
        self._leave(lib.weft_ps_close)

    def abort(self):
        """close() for a worker that failed: another process may take its rank and continue."""
        self._leave(lib.weft_ps_abort)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                self.flush()
                self.close()
        finally:
            self.abort()

    def __del__(self):
        if getattr(self, "_ps", None) is not None:
            self.abort()

    # ---- for Table and Op ----

    def _leave(self, how):
        with self._lock:
            ps, self._ps = self._ps, None
            if ps is not None:
                how(ps)
            self._lent.clear()

    def _begin_lists(self, pieces, is_pull, value, *, bound, deadline, fill=0, norm=None):
        self._reap()
        handle = ffi.new("uint64_t *")
        kind = "struct weft_pull_list[]" if is_pull else "struct weft_push_list[]"
        lists = ffi.new(kind, len(pieces))
        for struct, piece in zip(lists, pieces):
            piece.write(struct, is_pull)
        function = lib.weft_pull_with if is_pull else lib.weft_push_with
        how = ffi.new("struct weft_op_options *")
        lib.weft_op_options_init(how, ffi.sizeof("struct weft_op_options"))
        how.bound_ppm, how.fill = ppm_of(bound), fill
        how.norm = -1.0 if norm is None else norm_of(norm)
        how.deadline_ns = 0 if deadline is None else max(1, ns_of(deadline, "deadline"))
        own = [Op(self, 0, value)]  # popped: an exception that is kept may keep this frame
        while True:
            before = self._dropped.ended
            try:
                self._call(function, self._pointer(), lists, len(pieces), how, handle)
                self._lent[handle[0]] = pieces
                own[0]._handle = handle[0]
                return own.pop()
            except WaitTimeoutError:
                pass  # a server is away, or no memory is free: continue, after handling Ctrl-C
            except AgainError:
                if not self._reap_one(before):
                    raise
            except BaseException:  # of a signal, when it had begun
                if handle[0] != 0 and own:
                    self._lent[handle[0]] = pieces
                    own[0]._handle = 0
                    self._dropped.add(handle[0])
                raise

    def _alive(self):
        if self._ps is None:
            raise InvalidError("this ps is closed; weft.connect makes another")

    def _pointer(self):
        self._alive()
        return self._ps

    def _call(self, function, *arguments, ended=None):
        """Call into C, as the only thread; raise its error. ended(): runs before another thread may call."""
        with self._lock:
            self._alive()
            status = function(*arguments)
            if ended is not None:
                ended()
            if status == lib.WEFT_OK:
                return
            words = text(lib.weft_ps_error(self._ps))
        raise error_of(status, words)

    def _ended(self, function, handle, *arguments):
        """-> (exception or None, Result); the operation is complete unless the exception is the timeout."""
        struct = ffi.new("struct weft_result *")
        struct.size = ffi.sizeof("struct weft_result")
        error, missed = None, NOTHING

        def ended():
            nonlocal missed
            missed = _missed(self._ps) if struct.rows_missed else NOTHING

        try:
            self._call(function, self._pointer(), handle, *arguments, struct, ended=ended)
        except Error as caught:
            error = caught
        if error is not None and error.status in ("WEFT_TIMEOUT", "WEFT_AGAIN"):
            return error, None
        self._lent.pop(handle, None)
        result = _result(struct, missed)
        if isinstance(error, Dropped):
            error = None  # expected with a delay bound; see result.dropped
        if error is not None:
            error.result = result
        return error, result

    def _wait(self, handle, patience_ns):
        def one_part(part_ns):
            error, result = self._ended(lib.weft_wait, handle, part_ns)
            if isinstance(error, WaitTimeoutError):
                raise error
            return error, result

        return patiently(patience_ns, one_part)

    def _test(self, handle):
        error, result = self._ended(lib.weft_test, handle)
        return None if error is not None and error.status == "WEFT_AGAIN" else (error, result)

    def _drop(self, handle):
        if self._ps is not None:
            self._dropped.add(handle)

    def _reap_one(self, before):
        """Wait for an operation whose object was dropped; False if there is none. before: _dropped.ended"""
        return self._dropped.collect_one(lambda handle: self._ended_well(self._wait(handle, NEVER_NS)), before)

    def _reap(self):
        """Release completed operations whose objects were dropped."""
        self._alive()
        self._dropped.collect(lambda handle: self._ended_well(self._test(handle)))

    @staticmethod
    def _ended_well(ended):
        """ended: of _wait or _test. -> True; False if it is in progress. Raises its error."""
        if ended is not None and ended[0] is not None:
            raise ended[0]
        return ended is not None


def _table_of(table):
    if not isinstance(table, Table):
        raise TypeError(f"a list begins with a {type(table).__name__}; it must be a weft.Table")
    return table


def connect(servers=None, *, security="auth", timeout=60.0, key=None, **config):
    """Connect to all shards. -> PS

    servers: "host:port,host:port", shard 0 first; None = those registered with the job's
    coordinator: coordinator="host:port", or WEFT_COORDINATOR; without one the variable WEFT_SERVERS.
    timeout: seconds to wait for servers that have not started yet. key: 32 bytes in place of key_file.
    config: further fields of struct weft_ps_config: worker, workers, key_file, thread, transport,
    dim_max, ops_max, rows_max and so on. These have a meaning of their own here:

    via: the aggregator (`weft aggregate`) that gets this worker's pushes, "host:port"; or "coordinator":
    the aggregator that the coordinator assigns, preferably one whose `--rack` is the field rack of this
    worker (the name of its rack or host); or, with a scheduler, several aggregators,
    "host:port/host:port". None = WEFT_VIA, "" = no aggregator.
    hot_rows: with via, send only requests for hot rows to the aggregator, and all others to the servers.
    The servers choose the hot rows (`weft server --hot-rows`); this worker has memory for so many. Not
    with scheduler or update_bytes_min.
    scheduler: "host:port" of the job's `weft scheduler`, with consistency="bsp", "ssp:N" or "asp" of all
    tables, and tau_max, the delay bound; see Result.dropped. None = WEFT_SCHEDULER, "" = no scheduler.
    replicas: the replicas of servers, as servers, of a job without coordinator (docs/FABRIC.md, "Replicas"):
    tried while a server is disconnected. With reconnect_timeout_ns.
    """
    struct = ffi.new("struct weft_ps_config *")
    lib.weft_ps_config_init(struct, ffi.sizeof("struct weft_ps_config"))
    struct.call_timeout_ns = SLICE_NS
    keep = []
    set_security(struct, security, key, keep)
    if servers is not None:
        config["servers"] = servers
    set_fields(struct, {name: value for name, value in config.items() if value is not None}, keep)
    patience_ns = ns_of(timeout, "timeout")

    def one_part(part_ns):
        ps = ffi.new("struct weft_ps **")
        struct.connect_timeout_ns = part_ns
        status = lib.weft_ps_connect(struct, ps)
        if status != lib.WEFT_OK:
            raise error_of(status, text(lib.weft_ps_error(ffi.NULL)))
        return ps[0]

    # Longer than a server's timeout, after which a refusal is detected.
    slice_ns = struct.peer_timeout_ns + 1_000_000_000
    return PS(patiently(patience_ns, one_part, slice_ns), struct.rows_max, patience_ns)
