"""A communication hook for DistributedDataParallel: computes the mean of the gradients over weft. A bounded
fraction may be missing; error feedback keeps it.

    model = DistributedDataParallel(model)
    model.register_comm_hook(weft.torch.HookState(bound=0.1), weft.torch.allreduce_hook)
"""

import torch
import torch.distributed as dist

from .. import coll
from .._values import ppm_of
from . import rendezvous, staging
from .engine import Engine
from .process_group import TYPES, WeftWork, of


class HookState:
    """State of the hook across steps.

    bound:         fraction of the contributions to each bucket that may be missing
    feedback:      keep missing elements and add them to the next step (float32 gradients). Without it,
                   each element is divided by the number of received contributions
    process_group: that of the model; None = the default one. It need not be of the backend weft: then
                   the hook makes its own communicator, and exchanges addresses through the group's store
    scaler:        torch.amp.GradScaler, if there is one: residuals are rescaled with it
    options:       further options of weft.coll.Communicator, if the hook makes one
    """

    def __init__(self, bound=0.0, feedback=True, process_group=None, scaler=None, **options):
        ppm_of(bound)
        self.bound = bound
        self.feedback = feedback
        self.process_group = process_group
        self.scaler = scaler
        self.options = options
        self.resets = 0  # times that residuals were dropped, because buckets were rebuilt
        self.elements_missing = 0  # of this rank's contributions
        self.elements_sent = 0
        self._engine = None
        self._timeout_ns = int(options.get("op_timeout_ns", 300_000_000_000))
        self._kept = {}  # by bucket: (its parameters, Feedback)
        self._scale = None

    def engine(self):
        if self._engine is None:
            own = of(self.process_group)
            if own is None:
                self._engine = self._meet()
            else:
                self._engine, self._timeout_ns = own._engine, own._timeout_ns
        return self._engine

    def group(self):
        return self.process_group or dist.distributed_c10d._get_default_group()

    def _meet(self):
        group = self.group()
        store = dist.distributed_c10d._world.pg_map[group][1] if hasattr(
            dist.distributed_c10d, "_world"
        ) else dist.distributed_c10d._pg_map[group][1]
        store = dist.PrefixStore("weft hook", store)
        timeout = self.options.pop("timeout", 300.0)
        world = group.size() == dist.get_world_size()
        comm = rendezvous.meet(
            store, group.rank(), group.size(), timeout, world=world, ops_max=256, **self.options
        )
        return Engine(comm)

    def kept(self, bucket):
        """The Feedback of a bucket; after its parameters changed, a new one."""
        key = tuple(id(parameter) for parameter in bucket.parameters())
        before = self._kept.get(bucket.index())
        if before is None or before[0] != key:
            self.resets += before is not None
            elements = bucket.buffer().numel()
            before = (key, coll.Feedback(elements, stream=bucket.index()))
            self._kept[bucket.index()] = before
        return before[1]

    def rescale(self):
        """Gradients of automatic mixed precision are multiplied by a scale that changes."""
        if self.scaler is None:
            return
        scale = self.scaler.get_scale()
        if self._scale is not None and scale != self._scale:
            for _, feedback in self._kept.values():
                feedback.residual *= scale / self._scale
        self._scale = scale


def _first(value):
    return value[0] if isinstance(value, (list, tuple)) else value


def allreduce_hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    tensor = bucket.buffer()
    if tensor.is_sparse:  # gradients of an Embedding with sparse=True; exact, by the group's own operation
        group = state.group()
        future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
        return future.then(lambda done: _first(done.value()) / group.size())
    device = staging.of([tensor])
    if tensor.dtype not in TYPES:
        raise RuntimeError(f"gradients are {tensor.dtype}; weft's hook supports floats")
    if bucket.index() == 0:
        state.rescale()
    fields = {"bound_ppm": ppm_of(state.bound), "reduction": coll.REDUCTIONS["mean"]}
    feedback = None
    if state.feedback and state.bound > 0:
        feedback = state.kept(bucket)
        fields.update(feedback.fields(tensor.numel(), str(tensor.dtype).removeprefix("torch.")))
    else:
        fields["stream"] = bucket.index()

    def begin(host_of):
        return _begin(state, host_of(tensor), feedback, fields)

    if device is None:
        return begin(lambda one: one).get_future()
    return staging.run(device, [tensor], [tensor], tensor, begin).get_future()


def _begin(state, tensor, feedback, fields):
    engine = state.engine()
    work = WeftWork("all_reduce", tensor, None, state._timeout_ns, state.group())

    def ended(failure, done):
        if done is not None:
            state.elements_missing += done.own_missing
            state.elements_sent += tensor.numel()
        work.ended(failure, done)

    address = tensor.data_ptr()
    number = engine.begin(
        ended,
        "all_reduce",
        TYPES[tensor.dtype],
        address,
        address,
        tensor.numel(),
        None,
        (tensor, feedback),
        timeout_ns=state._timeout_ns,
        **fields,
    )
    work.begun(engine, number)
    return work
