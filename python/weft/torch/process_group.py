"""torch.distributed over weft: init_process_group("weft").

A subclass of ProcessGroup in Python, which works from PyTorch 1.13 to 2.13 without compiling anything:
PyTorch calls its methods from Python and, in DistributedDataParallel, from C++. Each group has a
communicator of its own.

Every operation here is exact (bound 0): PyTorch uses the same calls for parameters, bitmaps of unused
parameters, BatchNorm and metrics as for gradients. Loss must be requested: all_reduce of this
module, and the hook.
"""

import collections
import datetime
import functools
import re
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work

import weft_torch_backend

from .. import coll
from .._library import Error, lib
from .._values import ppm_of
from . import rendezvous, staging
from .engine import Engine
from .staging import put, staged

TYPES = {
    torch.float32: lib.WEFT_COMM_F32,
    torch.float64: lib.WEFT_COMM_F64,
    torch.float16: lib.WEFT_COMM_F16,
    torch.bfloat16: lib.WEFT_COMM_BF16,
    torch.int8: lib.WEFT_COMM_I8,
    torch.uint8: lib.WEFT_COMM_U8,
    torch.bool: lib.WEFT_COMM_U8,
    torch.int32: lib.WEFT_COMM_I32,
    torch.int64: lib.WEFT_COMM_I64,
}
REDUCTIONS = {
    "SUM": "sum",
    "AVG": "mean",
    "PRODUCT": "product",
    "MIN": "min",
    "MAX": "max",
    "BAND": "and",
    "BOR": "or",
    "BXOR": "xor",
}
EXCHANGE_TAG = 2**32 - 1  # of the blocks of an all_to_all; programs have those below
KEPT_WITH_RESULTS = 16  # of the last Works that are kept for PyTorch
ONLY_KEPT = 3  # references of one that nothing else in Python has, as sys.getrefcount counts them in keep()
WORKS_LAST = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2]) >= (2, 7)
OF_BOOL = {"sum": "or", "product": "and", "min": "and", "max": "or"}

_error = staging.error
_groups = {}  # by id: groups whose init has not been torn down
_lock = threading.Lock()


def register():
    """Make "weft" a backend of torch.distributed. May be called again; PyTorch 2.5 and later do it
    automatically."""
    weft_torch_backend.register()


def ranks_of_job(group):
    """-> dict: rank in the group: rank in the job"""
    c10d = dist.distributed_c10d
    of_group = c10d._world.pg_group_ranks if hasattr(c10d, "_world") else c10d._pg_group_ranks
    return {mine: theirs for theirs, mine in of_group.get(group, {}).items()}


def _named(failure, group):
    """A group numbers its ranks from 0: add the numbers that ranks in the text have in the job, if they differ."""
    ranks, others = ranks_of_job(group), []
    for number in sorted({int(one or other) for one, other in re.findall(r"\branks? (\d+)|\band (\d+) made", failure)}):
        if ranks.get(number, number) != number:
            others.append(f"rank {number} of this group is rank {ranks[number]} of the job")
    return f"{failure} ({', '.join(others)})" if others else failure


class WeftWork(Work):
    """An operation in progress, for PyTorch. Its future fails with the text of the reason.

    begun(engine, number) is called before any other code has this object.
    """

    def __init__(self, kind, result, finish=None, timeout_ns=300_000_000_000, group=None):
        super().__init__()
        self._kind = kind
        self._seconds = timeout_ns / 1e9
        self._group = group
        self._result = result
        self._finish = finish  # after success, in the communicator's or the waiting thread
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._has_ended = False
        self._failure = None
        self._base = self._future = None  # created on request: most callers only wait
        self._engine = self._number = None

    def begun(self, engine, number):
        self._engine, self._number = engine, number

    def ended(self, failure, done):
        signal = None
        if failure is None and self._finish is not None:
            try:
                self._finish()
            except BaseException as error:
                failure = f"after the operation: {str(error) or type(error).__name__}"
                signal = None if isinstance(error, Exception) else error  # such as KeyboardInterrupt
        if failure is not None:
            late = f"timeout of {self._seconds:g} s: " if " has not " in failure else ""
            self._failure = f"{self._kind}: {late}{_named(failure, self._group)}"
        self._finish = None  # with the memory that it needed
        with self._lock:
            self._has_ended = True
            base = self._base
        if base is None:
            self._over.set()
        else:
            base.set_result(None)
        if signal is not None:
            raise signal

    def _value(self, base):
        if self._failure is not None:
            raise _error(self._failure)
        return self._result

    def is_completed(self):
        return self._over.is_set()

    def is_success(self):
        return self._over.is_set() and self._failure is None

    def failure(self):
        """The reason as text; None unless it has failed."""
        return self._failure

    def exception(self):
        return None if self._failure is None else _error(self._failure)

    def wait(self, timeout=datetime.timedelta(0)):
        seconds = timeout.total_seconds() if timeout else 0
        until = time.monotonic() + seconds if seconds > 0 else None
        if not self._over.is_set():
            self._engine.wait(self._number, until)
        if not self._over.wait(None if until is None else max(0, until - time.monotonic())):
            raise _error(f"the operation has not ended within {seconds:g} s")
        if self._failure is not None:
            raise _error(self._failure)
        return True

    def get_future(self):
        with self._lock:
            if self._future is None:
                self._make_future()
            return self._future

    def _make_future(self):
        self._base = torch.futures.Future()
        # An exception set on a future loses its text in C++; one raised in a callback
        # keeps it.
        self._future = self._base.then(self._value)
        # After wait() the future is complete; the first callback runs before all others.
        self._future.add_done_callback(lambda _: self._over.set())
        if self._has_ended:
            self._base.set_result(None)

    def result(self):
        return self._result

    def forget(self):
        """Release the tensors, if it has ended well: only wait() may still be called."""
        if self.is_success():
            self._result = self._base = self._future = None


def _check(tensor, what):
    if tensor.device.type != "cpu":
        raise _error(
            f"{what} is on {tensor.device}; weft takes those of the CPU and of CUDA; move it there first"
        )
    if tensor.is_sparse:
        raise _error(f"{what} is sparse; weft takes dense tensors, and sparse ones in a sum or mean")
    return tensor


def _bytes_of(tensor):
    """The same memory in a type that weft supports, for operations that only move data."""
    if tensor.dtype in TYPES:
        return TYPES[tensor.dtype], tensor.numel()
    return lib.WEFT_COMM_U8, tensor.numel() * tensor.element_size()


@functools.lru_cache(maxsize=32)
def _name_of(kind):
    """Cached, because pybind11 searches all enumerators for it."""
    return getattr(kind, "name", str(kind))


def _reduction(op, tensor):
    name = _name_of(getattr(op, "op", op))  # a ReduceOp, or its type
    reduction = REDUCTIONS.get(name)
    if reduction is None or tensor.dtype not in TYPES:
        raise _error(
            f"weft has no {name} of {tensor.dtype}; it has {', '.join(REDUCTIONS)} of "
            + ", ".join(str(kind).removeprefix("torch.") for kind in TYPES)
        )
    if tensor.dtype == torch.bool:
        reduction = OF_BOOL.get(reduction, reduction)
    return coll.REDUCTIONS[reduction]


def _timeout(delta):
    return {"timeout_ns": max(1, int(delta.total_seconds() * 1e9))}


def _tag(tag):
    if not 0 <= tag < EXCHANGE_TAG:
        raise _error(f"the tag is {tag}; it must be from 0 to {EXCHANGE_TAG - 1}")
    return tag


def _same_type(output, *inputs):
    """Not all releases of PyTorch check it, and the library would write beyond a shorter output."""
    for one in inputs:
        if one.dtype != output.dtype:
            raise _error(f"the input is {one.dtype}, and the output {output.dtype}; they must be of one type")


def _one(tensors, what):
    if len(tensors) != 1:
        raise _error(f"{len(tensors)} {what}; weft requires one per rank")
    return _check(tensors[0], what)


class ProcessGroupWeft(ProcessGroup):
    """A process group with its own communicator; made by init_process_group and new_group."""

    def __init__(self, engine, rank, size, timeout):
        super().__init__(rank, size)
        self._engine = engine
        self._timeout_ns = _timeout(timeout)["timeout_ns"]
        self._rank_weft, self._size_weft = rank, size
        self._names = {"name": "", "desc": ""}
        # PyTorch before 2.7 may drop a Work that it still waits for. Later versions do not, and freeing a Work
        # at once lets the next one reuse its memory while it is in the cache. What waits in C++ has no reference
        # that Python counts.
        self._works = None if WORKS_LAST else collections.deque(maxlen=1024)
        self._full = collections.deque(maxlen=1024)  # those of them, but the last, that have their tensors
        with _lock:
            _groups[id(self)] = self

    @classmethod
    def from_store(cls, store, rank, size, timeout):
        try:
            comm = rendezvous.meet(
                store,
                rank,
                size,
                timeout.total_seconds(),
                world=not dist.is_initialized(),  # this is the default group
                ops_max=256,
            )
        except Error as error:
            of_what = "; ranks are those in the new group" if dist.is_initialized() else ""
            raise _error(f"weft: {error}{of_what}") from None
        return cls(Engine(comm), rank, size, timeout)

    # ---- interface of PyTorch ----

    def getBackendName(self):
        return "weft"

    def name(self):
        return "weft"

    def getRank(self):
        return self._rank_weft

    def getSize(self):
        return self._size_weft

    rank, size = getRank, getSize

    def get_group_store(self):
        return None

    # C++ keeps these in the backends of a group; this group has none.
    def setGroupName(self, name):
        self._names["name"] = name

    def getGroupName(self):
        return self._names["name"]

    def setGroupDesc(self, text):
        self._names["desc"] = text

    def getGroupDesc(self):
        return self._names["desc"]

    @property
    def communicator(self):
        """weft.coll.Communicator, for its counters; only this group may begin operations on it."""
        return self._engine.comm

    def shutdown(self):
        with _lock:
            _groups.pop(id(self), None)
        self._engine.close()

    def abort(self):
        self._engine.abort("abort of the process group")

    # ---- operations ----

    def _begin(self, kind, type_, from_, to, count, result, finish=None, **fields):
        """from_, to: tensors, or None."""
        fields.setdefault("timeout_ns", self._timeout_ns)
        work = WeftWork(kind, result, finish, fields["timeout_ns"], self)
        try:
            number = self._engine.begin(
                work.ended,
                kind,
                type_,
                0 if from_ is None else from_.data_ptr(),
                0 if to is None else to.data_ptr(),
                count,
                None,
                (from_, to, result),
                **fields,
            )
        except Error as error:
            raise _error(f"weft: {kind}: {_named(str(error), self)}") from None
        work.begun(self._engine, number)
        return self.keep(work)

    def keep(self, work):
        if self._works is not None:
            self._works.append(work)
            if len(self._works) > KEPT_WITH_RESULTS:
                self._full.append(self._works[-1 - KEPT_WITH_RESULTS])
                for _ in range(min(2, len(self._full))):  # two, so that those that were in use become fewer
                    older = self._full.popleft()
                    # C++ asks for a future at once, if at all.
                    if sys.getrefcount(older) <= ONLY_KEPT and older.is_completed():
                        older.forget()
                    else:
                        self._full.append(older)
        return work

    def _several(self, works, result, finish=None):
        return self.keep(_Several(works, result, finish))

    def _in_place(self, kind, tensor, result, type_, count, **fields):
        """Operate on the tensor itself, or on a contiguous copy, which is copied back."""
        if tensor.is_contiguous():
            return self._begin(kind, type_, tensor, tensor, count, result, **fields)
        copy = tensor.contiguous()
        return self._begin(kind, type_, copy, copy, count, result, lambda: put(tensor, copy), **fields)

    @staged([0], [0])
    def allreduce(self, tensors, opts=None):
        op = dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)
        if len(tensors) == 1 and tensors[0].is_sparse:
            return self._sum_sparse(tensors, op)
        tensor = _one(tensors, "tensors to reduce")
        return self._in_place(
            "all_reduce",
            tensor,
            tensors,
            TYPES.get(tensor.dtype),
            tensor.numel(),
            reduction=_reduction(op, tensor),
        )

    def _sum_sparse(self, tensors, op):
        """Gather the indices and values of all ranks; each rank adds them in rank order."""
        tensor, n = tensors[0], self._size_weft
        if REDUCTIONS.get(getattr(getattr(op, "op", op), "name", "")) not in ("sum", "mean"):
            raise _error(f"weft has no {op} of sparse tensors; it has SUM and AVG")
        tensor = tensor.coalesce()
        indices, values = _check(tensor.indices(), "the tensor"), tensor.values()
        own, counts = torch.tensor([indices.shape[1]]), torch.zeros(n, dtype=torch.int64)
        self._allgather_base(counts, own).wait()
        longest = int(counts.max())
        gathered = []
        works = []
        for part in (indices.t(), values):
            padded = part.new_zeros((longest, *part.shape[1:]))
            padded[: part.shape[0]] = part
            gathered.append(part.new_zeros((n, *padded.shape)))
            works.append(self._allgather_base(gathered[-1], padded))

        def back():
            places = torch.cat([gathered[0][i, : counts[i]] for i in range(n)]).t()
            numbers = torch.cat([gathered[1][i, : counts[i]] for i in range(n)])
            total = torch.sparse_coo_tensor(places, numbers, tensor.shape).coalesce()
            mean = REDUCTIONS[getattr(op, "op", op).name] == "mean"
            put(tensors[0], total / n if mean else total)

        return self._several(works, tensors, back)

    @staged([0], [0])
    def allreduce_coalesced(self, tensors, opts=None):
        """One operation for all tensors, if they have the same type."""
        kinds = {_check(tensor, "a tensor").dtype for tensor in tensors}
        if len(kinds) != 1:
            raise _error(f"tensors of {len(kinds)} types; reduce those of each type separately")
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        op = dist.ReduceOp.SUM if opts is None else opts.reduceOp

        def back():
            parts = flat.split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts):
                put(tensor, part.view_as(tensor))

        return self._begin(
            "all_reduce",
            TYPES.get(flat.dtype),
            flat,
            flat,
            flat.numel(),
            tensors,
            back,
            reduction=_reduction(op, flat),
        )

    @staged([0], [0])
    def reduce(self, tensors, opts):
        tensor = _one(tensors, "tensors to reduce")
        return self._in_place(
            "reduce",
            tensor,
            tensors,
            TYPES.get(tensor.dtype),
            tensor.numel(),
            reduction=_reduction(opts.reduceOp, tensor),
            root=opts.rootRank,
        )

    @staged([0], [0])
    def broadcast(self, tensors, opts=None):
        tensor = _one(tensors, "tensors to broadcast")
        root = 0 if opts is None else opts.rootRank
        type_, count = _bytes_of(tensor)
        return self._in_place("broadcast", tensor, tensors, type_, count, root=root)

    @staged([0], [1])
    def allgather(self, outputs, inputs, opts=None):
        source = _one(inputs, "tensors to gather").contiguous()
        if len(outputs) != 1 or len(outputs[0]) != self._size_weft:
            raise _error(f"all_gather of {self._size_weft} ranks takes a list of as many outputs")
        flat = source.new_empty((self._size_weft, *source.shape))

        def back():
            for output, part in zip(outputs[0], flat):
                put(output, part.view_as(output))

        type_, count = _bytes_of(source)
        return self._begin("all_gather", type_, source, flat, count, outputs, back)

    @staged([0], [1])
    def _allgather_base(self, output, source, opts=None):
        _check(output, "the output")
        source = _check(source, "the input").contiguous()
        if output.numel() != source.numel() * self._size_weft or output.dtype != source.dtype:
            raise _error(
                f"the output has {output.numel()} elements of {output.dtype}; all_gather of "
                f"{self._size_weft} ranks makes {source.numel() * self._size_weft} of {source.dtype}"
            )
        flat = output if output.is_contiguous() else output.contiguous()
        back = None if flat is output else lambda: put(output, flat)
        type_, count = _bytes_of(source)
        return self._begin("all_gather", type_, source, flat, count, [output], back)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        works = [self._allgather_base(out, one) for out, one in zip(outputs, inputs)]
        return self._several(works, outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def allgather_coalesced(self, outputs, inputs, opts=None):
        works = [
            self.allgather([[row[i] for row in outputs]], [one]) for i, one in enumerate(inputs)
        ]
        return self._several(works, outputs)

    @staged([0], [1])
    def gather(self, outputs, inputs, opts):
        source = _one(inputs, "tensors to gather").contiguous()
        root = opts.rootRank == self._rank_weft
        if root and (len(outputs) != 1 or len(outputs[0]) != self._size_weft):
            raise _error(f"gather of {self._size_weft} ranks takes a list of as many outputs")
        flat = source.new_empty((self._size_weft, *source.shape)) if root else None

        def back():
            for output, part in zip(outputs[0], flat):
                put(output, part.view_as(output))

        type_, count = _bytes_of(source)
        return self._begin(
            "gather", type_, source, flat, count, outputs, back if root else None, root=opts.rootRank
        )

    @staged([0], [1])
    def scatter(self, outputs, inputs, opts):
        output = _one(outputs, "tensors to scatter into")
        flat = None
        if opts.rootRank == self._rank_weft:
            if len(inputs) != 1 or len(inputs[0]) != self._size_weft:
                raise _error(f"scatter of {self._size_weft} ranks takes a list of as many inputs")
            _same_type(output, *inputs[0])
            flat = torch.stack([_check(one, "an input").reshape(output.shape) for one in inputs[0]])
        part = output if output.is_contiguous() else output.contiguous()
        back = None if part is output else lambda: put(output, part)
        type_, count = _bytes_of(output)
        return self._begin(
            "scatter", type_, flat, part, count, outputs, back, root=opts.rootRank
        )

    @staged([0], [1])
    def reduce_scatter(self, outputs, inputs, opts):
        output = _one(outputs, "tensors to reduce into")
        if len(inputs) != 1 or len(inputs[0]) != self._size_weft:
            raise _error(f"reduce_scatter of {self._size_weft} ranks takes a list of as many inputs")
        _same_type(output, *inputs[0])
        flat = torch.stack([_check(one, "an input").reshape(output.shape) for one in inputs[0]])
        return self._reduce_scatter(output, flat, opts)

    @staged([0], [1])
    def _reduce_scatter_base(self, output, source, opts):
        _check(output, "the output")
        source = _check(source, "the input").contiguous()
        if source.numel() != output.numel() * self._size_weft or output.dtype != source.dtype:
            raise _error(
                f"the input has {source.numel()} elements of {source.dtype}; reduce_scatter of "
                f"{self._size_weft} ranks takes {output.numel() * self._size_weft} of {output.dtype}"
            )
        return self._reduce_scatter(output, source, opts)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        works = [self._reduce_scatter_base(out, one, opts) for out, one in zip(outputs, inputs)]
        return self._several(works, outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce_scatter(self, output, flat, opts):
        part = output if output.is_contiguous() else output.contiguous()
        back = None if part is output else lambda: put(output, part)
        return self._begin(
            "reduce_scatter",
            TYPES.get(flat.dtype),
            flat,
            part,
            output.numel(),
            [output],
            back,
            reduction=_reduction(opts.reduceOp, flat),
        )

    @staged([0], [1])
    def alltoall_base(self, output, source, output_splits, input_splits, opts=None):
        _check(output, "the output")
        source = _check(source, "the input").contiguous()
        _same_type(output, source)
        flat = output if output.is_contiguous() else output.contiguous()
        back = None if flat is output else lambda: put(output, flat)
        if not output_splits and not input_splits:
            if output.numel() != source.numel() or source.shape[0] % self._size_weft:
                raise _error(
                    f"the input has {source.numel()} elements in {source.shape[0]} rows, the output "
                    f"{output.numel()}; without split sizes they are {self._size_weft} equal blocks"
                )
            type_, count = _bytes_of(source)
            return self._begin(
                "all_to_all", type_, source, flat, count // self._size_weft, [output], back
            )
        rows = lambda splits, one: splits or [one.shape[0] // self._size_weft] * self._size_weft
        return self._exchange(
            source.split(rows(input_splits, source)),
            flat.split(rows(output_splits, flat)),
            [output],
            back,
        )

    all_to_all_single = alltoall_base

    @staged([0], [1])
    def alltoall(self, outputs, inputs, opts=None):
        sources = [_check(one, "an input").contiguous() for one in inputs]
        for output, source in zip(outputs, sources):
            _same_type(output, source)
        flat = [one if one.is_contiguous() else one.contiguous() for one in outputs]

        def back():
            for output, part in zip(outputs, flat):
                if part is not output:
                    put(output, part)

        return self._exchange(sources, flat, outputs, back)

    def _exchange(self, sources, outputs, result, back):
        """Send a block to each rank and receive one from each, of any sizes. Empty ones are sent, too: a rank that
        expects another size is told so."""
        if len(sources) != self._size_weft or len(outputs) != self._size_weft:
            raise _error(f"all_to_all of {self._size_weft} ranks takes as many inputs and outputs")
        me, works = self._rank_weft, []
        if outputs[me].numel() != sources[me].numel():
            raise _error("the block that this rank sends to itself differs in size from its output")
        put(outputs[me], sources[me].view_as(outputs[me]))
        for i in range(1, self._size_weft):
            to, from_ = (me + i) % self._size_weft, (me - i) % self._size_weft
            works.append(self._pair("recv", outputs[from_], from_, EXCHANGE_TAG))
            works.append(self._pair("send", sources[to], to, EXCHANGE_TAG))
        return self._several(works, result, back)

    def _pair(self, kind, tensor, peer, tag, finish=None):
        type_, count = _bytes_of(tensor)
        source, output = (tensor, None) if kind == "send" else (None, tensor)
        return self._begin(
            kind, type_, source, output, count, [tensor], finish, peer=peer, tag=tag
        )

    @staged([], [0])
    def send(self, tensors, peer, tag=0):
        tensor = _one(tensors, "tensors to send")
        return self._pair("send", tensor.contiguous(), peer, _tag(tag))

    @staged([0], [0])
    def recv(self, tensors, peer, tag=0):
        tensor = _one(tensors, "tensors to receive")
        if tensor.is_contiguous():
            return self._pair("recv", tensor, peer, _tag(tag))
        copy = tensor.contiguous()
        return self._pair("recv", copy, peer, _tag(tag), lambda: put(tensor, copy))

    def recv_anysource(self, tensors, tag=0):
        raise _error("weft receives only from a named rank; pass src to recv")

    def barrier(self, opts=None):
        own = getattr(opts, "timeout", None)  # unset, it is negative
        fields = _timeout(own) if own is not None and own.total_seconds() > 0 else {}
        return self._begin("barrier", lib.WEFT_COMM_U8, None, None, 0, [], **fields)


class _Several(Work):
    """The operations of one call of PyTorch."""

    def __init__(self, works, result, finish=None):
        super().__init__()
        self._works = works
        self._result = result
        self._finish = finish
        every = torch.futures.collect_all([work.get_future() for work in works])
        device = next((work.device for work in works if isinstance(work, staging.StagedWork)), None)
        if device is None:
            self._future = every.then(self._value)
        else:  # collect_all makes a future of the CPU
            base = device.future()
            every.add_done_callback(lambda _: base.set_result(None))
            self._future = base.then(lambda _: self._value(every))

    def _value(self, every):
        for one in every.value():
            one.wait()  # it is complete: the current stream waits for its copies; raises its error
        if self._finish is not None:
            self._finish()
        return self._result

    def is_completed(self):
        return self._future.done()  # after `finish`, which writes the results

    def is_success(self):
        return self.is_completed() and self.exception() is None

    def failure(self):
        error = self.exception()
        return None if error is None else str(error)

    def exception(self):
        try:
            self._future.value() if self._future.done() else None
        except Exception as error:
            return error
        return None

    def wait(self, timeout=datetime.timedelta(0)):
        for work in self._works:
            work.wait(timeout)
        self._future.wait()
        return True

    def get_future(self):
        return self._future

    def result(self):
        return self._result

    def forget(self):
        if self.is_success():
            for work in self._works:
                work.forget()
            self._works, self._result, self._finish = [], None, None
            self._future = torch.futures.Future()
            self._future.set_result(None)


def of(group):
    """The ProcessGroupWeft of a group of torch.distributed, or None."""
    group = dist.distributed_c10d._get_default_group() if group is None else group
    return group if isinstance(group, ProcessGroupWeft) else None


@torch.no_grad()
def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, *, bound=0.0, feedback=None, async_op=False):
    """torch.distributed.all_reduce that may lose a fraction of the contributions.

    bound: this fraction. feedback: weft.coll.Feedback of the tensor's length, kept from call to call,
    for float32; it keeps the missing elements and adds them to the next call. For a mean, each element is
    divided by the number of received contributions, or with feedback by the number of ranks.
    -> a Work with async_op, else None
    """
    own = of(group)
    if own is None:
        raise _error("this group is not of the backend weft; make it with init_process_group('weft')")
    fields = {"bound_ppm": ppm_of(bound), "reduction": _reduction(op, tensor)}
    if feedback is not None:
        fields.update(feedback.fields(tensor.numel(), str(tensor.dtype).removeprefix("torch.")))

    def begin(host_of):
        one = _check(host_of(tensor), "the tensor")
        return own._in_place("all_reduce", one, [one], TYPES.get(one.dtype), one.numel(), **fields)

    device = staging.of([tensor])
    if device is None:
        work = begin(lambda one: one)
    else:
        work = own.keep(staging.run(device, [tensor], [tensor], [tensor], begin))
    work.lent = feedback
    return work if async_op else work.wait() and None


def monitored_barrier(group=None, timeout=None):
    """A barrier whose error names the rank that did not enter it. timeout: a timedelta.

    Unlike Gloo's, a failure ends the group: make a new one, or the process.
    """
    own = of(group)
    if own is None:
        return dist.monitored_barrier(group, timeout)
    fields = {} if timeout is None else _timeout(timeout)
    own._begin("barrier", lib.WEFT_COMM_U8, None, None, 0, [], **fields).wait()
