"""Injected loss, to measure how much loss a model tolerates without a lossy network.

A contribution is a worker's gradients, flattened. It is lost in ranges of 352 elements, the size of a weft
packet, or element by element as in the paper, each with the same probability.
"""

import torch

RANGE = 352
ARMS = ("zero", "count", "feedback")


class Mean:
    """The mean over workers of contributions of which some ranges are lost.

    arm: "zero" divides by the number of workers, "count" by the number of contributions that arrived,
    "feedback" by the number of workers, and adds what was lost to the worker's next contribution.
    """

    def __init__(self, workers, elements, rate, arm, range_=RANGE, seed=0):
        if arm not in ARMS:
            raise ValueError(f"arm is {arm!r}; choose one of {', '.join(ARMS)}")
        self.arm, self.rate, self.range = arm, rate, range_
        self.random = torch.Generator().manual_seed(seed)
        self.residual = torch.zeros(workers, elements)
        self.lost = 0
        self.sent = 0

    def __call__(self, contributions):
        """(workers, elements), which may be changed -> (elements,)"""
        workers, elements = contributions.shape
        if self.rate == 0:
            return contributions.mean(0)
        ranges = -(-elements // self.range)
        came = torch.rand(workers, ranges, generator=self.random) >= self.rate
        return self.of(contributions, came.repeat_interleave(self.range, 1)[:, :elements])

    def of(self, contributions, came):
        """The same with given losses. came: (workers, elements) of bool, True = arrived."""
        workers, elements = contributions.shape
        self.sent += workers * elements
        self.lost += workers * elements - int(came.sum())
        if self.arm == "feedback":
            contributions += self.residual
            torch.mul(contributions, ~came, out=self.residual)
        total = (contributions * came).sum(0)
        return total / (came.sum(0).clamp(min=1) if self.arm == "count" else workers)

    def close(self):
        """No effect; over_coll.Mean.close closes its connections."""


class HookState:
    """State of `hook`, for DistributedDataParallel over any backend. feedback: as in weft's hook."""

    def __init__(self, rate, feedback, rank, ranks):
        self.rate, self.feedback, self.ranks = rate, feedback, ranks
        self.random = torch.Generator().manual_seed(1000 + rank)
        self.residual = {}
        self.lost = 0
        self.sent = 0


def hook(state, bucket):
    own = bucket.buffer()
    came = torch.rand(-(-own.numel() // RANGE), generator=state.random) >= state.rate
    mask = came.repeat_interleave(RANGE)[: own.numel()]
    state.sent += own.numel()
    state.lost += own.numel() - int(mask.sum())
    if state.feedback:
        before = state.residual.get(bucket.index())
        if before is not None and before.numel() == own.numel():  # buckets change after the first step
            own = own + before
        state.residual[bucket.index()] = own * ~mask
    together = torch.cat([own * mask, mask.to(own.dtype)])
    future = torch.distributed.all_reduce(together, async_op=True).get_future()

    def mean(_):
        total, count = together.split(mask.numel())
        return total / (state.ranks if state.feedback else count.clamp(min=1))

    return future.then(mean)
