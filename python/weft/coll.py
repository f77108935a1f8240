"""Collective operations for Python: <weft/coll.h> with numpy arrays, used in place.

    import numpy as np
    from weft import coll

    with coll.Communicator(rank, ranks, key_file="job.key") as comm:
        comm.join(exchange(comm.address))          # a list of all ranks' addresses
        mean = comm.all_reduce(gradient, reduction="mean", bound=0.05)

The functions correspond to those of <weft/coll.h>, which explains the design;
docs/COLLECTIVES.md is the manual.
"""

import contextlib
import math
import os
import threading
import time
import warnings

import numpy as np

from ._library import AgainError, Error, WaitTimeoutError, error_of, ffi, lib, text
from ._values import (
    NEVER_NS,
    DroppedOperations,
    c_text,
    ns_of,
    patiently,
    ppm_of,
    set_fields,
    set_security,
)

KINDS = {
    name: getattr(lib, f"WEFT_COMM_{name.upper()}")
    for name in (
        "all_reduce",
        "reduce",
        "reduce_scatter",
        "all_gather",
        "broadcast",
        "gather",
        "scatter",
        "all_to_all",
        "barrier",
        "send",
        "recv",
    )
}
REDUCTIONS = {
    name: getattr(lib, f"WEFT_COMM_{name.upper()}")
    for name in ("sum", "mean", "min", "max", "product", "and", "or", "xor")
}
TYPES = {
    "float32": lib.WEFT_COMM_F32,
    "float64": lib.WEFT_COMM_F64,
    "float16": lib.WEFT_COMM_F16,
    "bfloat16": lib.WEFT_COMM_BF16,
    "int8": lib.WEFT_COMM_I8,
    "uint8": lib.WEFT_COMM_U8,
    "bool": lib.WEFT_COMM_U8,
    "int32": lib.WEFT_COMM_I32,
    "int64": lib.WEFT_COMM_I64,
}

PLANS = {name: getattr(lib, f"WEFT_COMM_PLAN_{name.upper()}") for name in ("none", "auto", "slices", "trees")}

BOXED = {lib.WEFT_COMM_WITHOUT_BOX: None, lib.WEFT_COMM_BOXED: "box", lib.WEFT_COMM_FALLBACK: "fallback"}

CLOSE_S = 1.0  # calls of other threads that last longer than this after close() are ended by abort()


def _named(table, name, what):
    if name not in table:
        raise ValueError(f"{what} is {name!r}; choose one of {', '.join(table)}")
    return table[name]


def _check_dtype(dtype, what):
    if dtype.name not in TYPES:
        raise TypeError(f"{what} has dtype {dtype}; supported are {', '.join(TYPES)}")
    if not dtype.isnative:
        raise TypeError(
            f"{what} has dtype {dtype.str}, whose byte order is not this machine's; "
            f"make it {what}.astype({what}.dtype.newbyteorder('='))"
        )


def _array_of(array, what, writable=False):
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what} is a {type(array).__name__}; make it np.asarray({what})")
    _check_dtype(array.dtype, what)
    if not array.flags.c_contiguous:
        raise TypeError(f"{what} is not contiguous; make it np.ascontiguousarray({what})")
    if writable and not array.flags.writeable:
        raise TypeError(f"{what} is read-only; the result is written into it")
    return array


class Feedback:
    """Error feedback of one tensor: missing elements are kept, and added to the next call.

    elements: number of elements of the tensor, which must be float32; for reduce_scatter, of the whole
    array. Each tensor needs its own Feedback.
    """

    def __init__(self, elements, stream=0):
        self.residual = np.zeros(elements, dtype=np.float32)
        self.stream = stream
        self._divide(1)

    def _divide(self, blocks):
        """One counter per 32 elements of each block, initially zero."""
        self._blocks = blocks
        self.missed = np.zeros(blocks * -(-self.residual.size // blocks // 32), dtype=np.uint8)

    def clear(self):
        self.residual[:] = 0
        self.missed[:] = 0

    def fields(self, elements, type, blocks=1):
        """-> the feedback fields of struct weft_comm_op; TypeError if size or type differs

        blocks: that the operation divides the tensor into; reduce_scatter: the ranks of its group. If there were
        others before, the counters of consecutive calls begin again.
        """
        if elements != self.residual.size or type != "float32":
            raise TypeError(
                f"feedback of {self.residual.size} float32, but the tensor has {elements} {type}"
            )
        if blocks != self._blocks:
            self._divide(blocks)
        return {
            "stream": self.stream,
            "residual": ffi.cast("float *", self.residual.ctypes.data),
            "missed": ffi.cast("uint8_t *", self.missed.ctypes.data),
        }


class Group:
    """An ordered subset of the ranks, made by Communicator.group; comm.world is all of them."""

    def __init__(self, number, ranks, rank):
        self.number = number
        self.ranks = tuple(ranks)
        self.rank = self.ranks.index(rank) if rank in self.ranks else None  # of this process

    @property
    def size(self):
        return len(self.ranks)

    def __repr__(self):
        return f"<weft.coll.Group {self.number}: ranks {', '.join(map(str, self.ranks))}>"


class Work:
    """An operation in progress; completed by wait() or done().

    Do not change or reuse the arrays before that, even if this object is dropped: the operation
    still uses them.
    """

    def __init__(self, comm, number, value):
        self._comm = comm
        self._number = number
        self._value = value
        self.own_missing = 0  # elements of this rank's contribution that did not arrive
        self.contributors_min = 0  # fewest contributions to an element that this rank reduced
        self.seconds = 0.0
        self.boxed = None  # "box": summed by the aggregation box; "fallback": it has failed

    def wait(self, timeout=None):
        """Wait, at most `timeout` seconds. Returns the result."""
        if self._number is not None:
            patiently(ns_of(timeout, "timeout"), self._part)
        return self._value

    def done(self):
        """True if it is complete; does not block. Raises its error."""
        if self._number is not None:
            try:
                self._part(0)
            except WaitTimeoutError:
                return False
        return True

    def _part(self, part_ns):
        struct = self._comm._wait(self._number, part_ns, self)
        self.own_missing = struct.own_missing
        self.contributors_min = struct.contributors_min
        self.seconds = struct.total_ns / 1e9
        self.boxed = BOXED[struct.boxed]
        self._comm._look_at_box(struct)  # last, as a warning may be an error

    def __del__(self):
        if getattr(self, "_number", None) is not None:
            self._comm._dropped.add(self._number)


class Communicator:
    """One rank's connections with all others. A context manager.

    rank, ranks: this process's rank, 0 to ranks - 1, and the number of ranks, equal in all
    processes. key_file or key (32 bytes): the job key, unless WEFT_JOB_KEY has it. config: further
    fields of struct weft_comm_config: host, port, epoch, ops_max and so on.

    box="HOST:PORT", box_insecure=True, and box_float32=True, box_block_float=True or box_exponent: sums of
    all ranks go through this aggregation box (docs/COLLECTIVES.md). If it fails, a RuntimeWarning says so once,
    and the ranks sum without it.

    plan="auto", "slices" or "trees", and link_bps, the rate of this host's link: join() makes a plan for the
    vectors of all_reduce from the links of all ranks; see set_plan.
    """

    _comm = None  # of one that is closed

    def __init__(self, rank, ranks, *, security="auth", key=None, plan="none", **config):
        self._pid = os.getpid()
        self._calls = {}  # calls into the library in progress: their threads
        self._lent = {}  # arrays of operations in progress
        self._dropped = DroppedOperations()
        self._box_warned = False
        keep = []
        struct = ffi.new("struct weft_comm_config *")
        lib.weft_comm_config_init(struct, ffi.sizeof("struct weft_comm_config"))
        set_security(struct, security, key, keep)
        set_fields(
            struct,
            {"rank": rank, "ranks": ranks, "plan": _named(PLANS, plan, "plan"), **config},
            keep,
        )
        comm = ffi.new("struct weft_comm **")
        status = lib.weft_comm_open(struct, comm)
        if status != lib.WEFT_OK:
            raise error_of(status, text(lib.weft_comm_error(ffi.NULL)))
        self._comm = comm[0]
        self.rank = rank
        self.ranks = ranks
        self.address = text(lib.weft_comm_address(self._comm))
        self.world = Group(0, range(ranks), rank)

    def join(self, addresses, timeout=60.0):
        """Connect with all other ranks, and wait until that is done. All ranks call it.

        addresses: those of all ranks; addresses[i] is `address` of rank i's communicator.
        """
        if len(addresses) != self.ranks:
            raise ValueError(f"{len(addresses)} addresses; there are {self.ranks} ranks")
        keep = [c_text(str(address).encode()) for address in addresses]
        array = ffi.new("char *[]", keep)
        # In parts, so that Ctrl-C is handled between them; connections are kept.
        patiently(
            ns_of(timeout, "timeout"),
            lambda part_ns: self._call(lib.weft_comm_join, array, part_ns),
        )

    def group(self, ranks):
        """A group of ranks. All ranks of the job make the same groups in the same order. -> Group"""
        ranks = [int(rank) for rank in ranks]
        number = ffi.new("uint32_t *")
        self._call(lib.weft_comm_group, ffi.new("uint32_t[]", ranks), len(ranks), number)
        return Group(number[0], ranks, self.rank)

    def set_plan(self, form="auto", *, group=None, timeout=None, **link):
        """Make a plan for later all_reduces of a group from the links of its ranks. -> dict of struct weft_comm_planned

        All ranks of the group call it, between the same two operations, when none is in progress. form: "auto",
        "slices", "trees", or "none", which ends a plan. link: this rank's up_bps, down_bps, late_ns and host, and
        bytes, the usual length of vectors, which is the same at all ranks; see struct weft_comm_plan. Ctrl-C has no
        effect until all ranks have called it, or until `timeout` seconds have passed.
        """
        struct = ffi.new("struct weft_comm_plan *")
        lib.weft_comm_plan_init(struct, ffi.sizeof("struct weft_comm_plan"))
        fields = {
            "form": _named(PLANS, form, "form"),
            "group": self._group({"group": group}).number,
            "timeout_ns": 0 if timeout is None else max(1, ns_of(timeout, "timeout")),
        }
        set_fields(struct, {**fields, **link}, [])
        planned = ffi.new("struct weft_comm_planned *")
        planned.size = ffi.sizeof("struct weft_comm_planned")
        self._reap()
        self._call(lib.weft_comm_plan_set, struct, planned)
        forms = {number: name for name, number in PLANS.items()}
        names = [name for name, _ in ffi.typeof("struct weft_comm_planned").fields]
        values = {name: getattr(planned, name) for name in names if name != "size"}
        return {**values, "form": forms[planned.form]}

    # ---- operations: each waits for its result; with wait=False it returns a Work at once ----

    def all_reduce(self, array, out=None, *, reduction="sum", bound=0.0, feedback=None, **how):
        """Reduce element by element over all ranks; all get the same bits. -> out, or a new array

        out may be the array itself. bound: the fraction of contributions that may be missing.
        feedback: a Feedback, which keeps missing elements for the next call.
        """
        array = _array_of(array, "array")
        out = self._out(out, array.shape, array.dtype)
        return self._run(
            "all_reduce", array, out, array.size, reduction, bound, feedback, **how
        )

    def reduce(self, array, root=0, out=None, *, reduction="sum", bound=0.0, feedback=None, **how):
        """As all_reduce, but only the root gets the result: out or a new array; others None"""
        array = _array_of(array, "array")
        out = self._out_at(root, out, array.shape, array.dtype, how)
        return self._run(
            "reduce", array, out, array.size, reduction, bound, feedback, root=root, **how
        )

    def reduce_scatter(
        self, array, out=None, *, reduction="sum", bound=0.0, feedback=None, **how
    ):
        """array: (n, ...), a block for each rank of the group. -> this rank's block, reduced"""
        array = _array_of(array, "array")
        self._check_blocks(array, how)
        out = self._out(out, array.shape[1:], array.dtype)
        return self._run(
            "reduce_scatter", array, out, out.size, reduction, bound, feedback, **how
        )

    def all_gather(self, array, out=None, **how):
        """-> (n, ...): the input of each rank of the group"""
        array = _array_of(array, "array")
        out = self._out(out, (self._group(how).size, *array.shape), array.dtype)
        return self._run("all_gather", array, out, array.size, **how)

    def gather(self, array, root=0, out=None, **how):
        """As all_gather, but only the root gets the result: out or a new array; others None"""
        array = _array_of(array, "array")
        shape = (self._group(how).size, *array.shape)
        out = self._out_at(root, out, shape, array.dtype, how)
        return self._run("gather", array, out, array.size, root=root, **how)

    def broadcast(self, array, root=0, **how):
        """The root's array, into those of the others. -> array"""
        array = _array_of(array, "array", writable=self._group(how).rank != root)
        return self._run("broadcast", array, array, array.size, root=root, **how)

    def scatter(self, array, root=0, out=None, **how):
        """array: (n, ...) at the root. -> own block

        Other ranks pass `out`, or an array with the shape and type of a block.
        """
        if self._group(how).rank == root:
            array = _array_of(array, "array")
            self._check_blocks(array, how)
            out = self._out(out, array.shape[1:], array.dtype)
        else:
            like = out if out is not None else array
            out = self._out(out, np.shape(like), getattr(like, "dtype", None))
            array = None
        return self._run("scatter", array, out, out.size, root=root, **how)

    def all_to_all(self, array, out=None, **how):
        """array: (n, ...), a block for each rank. -> (n, ...), a block from each"""
        array = _array_of(array, "array")
        self._check_blocks(array, how)
        out = self._out(out, array.shape, array.dtype)
        return self._run("all_to_all", array, out, array[0].size, **how)

    def send(self, array, peer, *, tag=0, **how):
        """To another rank of the group, which calls recv with the same tag."""
        array = _array_of(array, "array")
        return self._run("send", array, None, array.size, peer=peer, tag=tag, **how)

    def recv(self, out, peer, *, tag=0, **how):
        """Into out, from another rank of the group. -> out"""
        out = _array_of(out, "out", writable=True)
        return self._run("recv", None, out, out.size, peer=peer, tag=tag, **how)

    def barrier(self, **how):
        """Wait until all ranks of the group have called it."""
        return self._run("barrier", None, None, 0, **how)

    def abort(self, words=""):
        """Make the communicator fail at all ranks.

        words: the reason; its first 39 bytes are sent to them.
        """
        self._called(lib.weft_comm_abort, c_text(words.encode()))

    @property
    def failure(self):
        """Why it has failed, in a sentence; None as long as it has not."""
        why = self._called(lib.weft_comm_failure)
        return None if why == ffi.NULL else text(why)

    @property
    def box_failure(self):
        """Why the aggregation box has failed and is not used, in a sentence; None if it is, or if there is none."""
        why = self._called(lib.weft_comm_box_failure)
        return None if why == ffi.NULL else text(why)

    def counters(self):
        """What was done and sent since it was opened, as a dict. See struct weft_comm_counters."""
        struct = ffi.new("struct weft_comm_counters *")
        struct.size = ffi.sizeof("struct weft_comm_counters")
        self._called(lib.weft_comm_counters_get, struct)
        names = [name for name, _ in ffi.typeof("struct weft_comm_counters").fields]
        return {name: getattr(struct, name) for name in names if name != "size"}

    def close(self):
        """Leave. Operations in progress are ended, and waits of other threads with them, and after 1 s a set_plan
        of another thread. May be called again."""
        if os.getpid() != self._pid:  # it belongs to the parent
            self._comm = None
            return
        comm = self.__dict__.pop("_comm", None)  # without a lock: a signal handler may call it
        if comm is not None:
            try:
                # Waits are in parts of 0.1 s; set_plan and others may last until their timeout, or a failure.
                late = time.monotonic() + CLOSE_S
                while set(self._calls.values()) - {threading.get_ident()}:
                    time.sleep(0.001)
                    if time.monotonic() > late:
                        late = math.inf
                        lib.weft_comm_abort(comm, c_text(b"closed"))
            except BaseException:  # Ctrl-C
                self._comm = comm
                raise
            lib.weft_comm_close(comm)
            self._lent.clear()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None and self._comm is not None:
            self.abort(f"{kind.__name__}: {error}")
        self.close()

    def __del__(self):
        if getattr(self, "_comm", None) is not None:
            self.close()

    def __repr__(self):
        return f"<weft.coll.Communicator: rank {self.rank} of {self.ranks}>"

    # ---- arguments ----

    def _group(self, how):
        return how.get("group") or self.world

    def _out(self, out, shape, dtype):
        if out is None:
            _check_dtype(np.dtype(dtype), "array")
            return np.empty(shape, dtype=dtype)
        out = _array_of(out, "out", writable=True)
        if out.dtype != dtype or out.size != np.prod(shape, dtype=np.int64):
            raise TypeError(f"out is {out.dtype} {out.shape}; it must be {np.dtype(dtype)} {shape}")
        return out

    def _out_at(self, root, out, shape, dtype, how):
        return self._out(out, shape, dtype) if self._group(how).rank == root else None

    def _check_blocks(self, array, how):
        size = self._group(how).size
        if array.ndim == 0 or array.shape[0] != size:
            raise TypeError(f"array has shape {array.shape}; its first axis must be {size}, the ranks")

    def _run(
        self,
        kind,
        array,
        out,
        count,
        reduction="sum",
        bound=0.0,
        feedback=None,
        *,
        root=0,
        peer=0,
        tag=0,
        group=None,
        timeout=None,
        wait=True,
    ):
        fields = {
            "root": root,
            "peer": peer,
            "tag": tag,
            "group": self._group({"group": group}).number,
            "bound_ppm": ppm_of(bound),
            "reduction": _named(REDUCTIONS, reduction, "reduction"),
            "timeout_ns": 0 if timeout is None else max(1, ns_of(timeout, "timeout")),
        }
        kept = None
        if feedback is not None:
            blocks = self._group({"group": group}).size if kind == "reduce_scatter" else 1
            fields.update(feedback.fields(array.size, array.dtype.name, blocks))
            kept = feedback.residual, feedback.missed
        some = array if array is not None else out
        kind_of = "uint8" if some is None else some.dtype.name
        work = self.begin(
            kind,
            _named(TYPES, kind_of, "the type"),
            0 if array is None else array.ctypes.data,
            0 if out is None else out.ctypes.data,
            count,
            out,
            (array, out, kept),
            **fields,
        )
        return work.wait() if wait else work

    def begin(self, kind, type, from_, to, count, value=None, lent=None, **fields):
        """Begin an operation on memory. -> Work, whose wait() returns `value`

        kind: such as "all_reduce"; type: of lib.WEFT_COMM_*; from_, to: addresses, 0 = none; lent:
        objects to keep alive until the operation ends. fields: further ones of struct weft_comm_op.
        """
        op = ffi.new("struct weft_comm_op *")
        lib.weft_comm_op_init(op, ffi.sizeof("struct weft_comm_op"))
        op.kind, op.type, op.count = _named(KINDS, kind, "kind"), type, count
        setattr(op, "in", ffi.cast("void *", from_))
        op.out = ffi.cast("void *", to)
        for name, field in fields.items():
            setattr(op, name, field)
        number = ffi.new("uint64_t *")  # of the operation; 0 until it has begun
        own = [Work(self, None, value)]  # popped: an exception that is kept may keep this frame
        self._reap()
        while True:
            before = self._dropped.ended
            try:
                self._call(lib.weft_comm_begin, op, number)
                self._lent[number[0]] = lent
                own[0]._number = number[0]
                return own.pop()
            except AgainError:
                if not self._reap_one(before):
                    raise
            except BaseException:  # of a signal, when it had begun
                if number[0] != 0 and own:
                    self._lent[number[0]] = lent
                    own[0]._number = None
                    self._dropped.add(number[0])
                raise

    # ---- the library ----

    def _pointer(self):
        if self._comm is None:
            raise Error("this communicator is closed")
        return self._comm

    def _called(self, function, *arguments):
        """Call the library with the communicator; close() waits for the end of it. -> what it returns"""
        call = object()
        try:  # without a lock: a signal handler may call abort() or close() between any lines
            self._calls[call] = threading.get_ident()
            return function(self._comm or self._pointer(), *arguments)
        finally:
            self._calls.pop(call, None)

    def _call(self, function, *arguments):
        status = self._called(function, *arguments)
        if status != lib.WEFT_OK:
            raise error_of(status, text(lib.weft_comm_error(ffi.NULL)))

    def _wait(self, number, part_ns, work=None):
        struct = ffi.new("struct weft_comm_done *")
        struct.size = ffi.sizeof("struct weft_comm_done")
        try:
            self._call(lib.weft_comm_wait, number, part_ns, struct)
        except WaitTimeoutError:
            raise
        except Error:
            self._ended(number, work)
            raise
        self._ended(number, work)
        return struct

    def _look_at_box(self, struct):
        """Warn at the first operation that the box should have summed."""
        if struct.boxed == lib.WEFT_COMM_FALLBACK and not self._box_warned:
            self._box_warned = True
            why = self.box_failure or "the aggregation box had failed, and is used again; the ranks summed without it"
            warnings.warn(f"weft: {why}", RuntimeWarning, stacklevel=2)

    def _ended(self, number, work):
        if work is not None:
            work._number = None
        self._lent.pop(number, None)

    def _reap(self):
        """Collect complete operations whose Work was dropped."""
        self._dropped.collect(lambda number: self._end(number, 0))

    def _reap_one(self, before):
        """Wait for an operation whose Work was dropped; False if there is none. before: _dropped.ended"""
        return self._dropped.collect_one(lambda number: self._end(number, NEVER_NS), before)

    def _end(self, number, patience_ns):
        """Collect an operation whose Work was dropped; False if it has not ended within patience_ns."""
        try:
            struct = patiently(patience_ns, lambda part_ns: self._wait(number, part_ns))
        except WaitTimeoutError:
            return False
        except Error:
            return True  # the communicator has failed; the next call raises the reason
        with contextlib.suppress(RuntimeWarning):  # it is not of the call in progress
            self._look_at_box(struct)
        return True
