"""An embedding whose rows are stored at weft's parameter server: torch.nn.Embedding, and EmbeddingBag, for
tables that are too large for one process, or of which a batch uses few rows.

    with weft.connect(...) as ps:
        rows = weft.torch.Embedding(ps, 0, 10_000_000, 32, optimizer="adagrad", learning_rate=0.1)
        for ids, labels in batches:
            loss = criterion(net(rows(ids)), labels)    # pulls the distinct rows of the batch
            loss.backward()                             # keeps their gradients, summed by row
            rows.step()                                 # pushes them; ends this worker's clock
            optimizer.step()                            # of the dense part

The manual is docs/PYTORCH.md, "Embeddings at the parameter server".
"""

import operator
import os
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ..ps import Table

AHEAD_MAX = 4  # batches that prefetch has fetched and forward has not used
UNSTEPPED_WARN = 64  # backward passes without step() before a warning

_AT_SERVER = "the rows of weft.torch.Embedding are at the parameter server"


class _Rows(torch.autograd.Function):
    """The pulled rows of a batch; their gradient is passed to the module.

    `anchor` makes autograd call backward: an empty tensor that requires a gradient. The rows are
    not a parameter, so neither an optimizer nor DistributedDataParallel treats them as one.
    """

    @staticmethod
    def forward(ctx, anchor, rows, module, ids):
        ctx.module, ctx.ids = module, ids
        return rows.view_as(rows)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        ctx.module._take(ctx.ids, gradient)
        return None, None, None, None


class _Ahead:
    """A batch's rows in flight: the ids, the time of the request, and the operation."""

    def __init__(self, ids, clock, op):
        self.ids, self.clock, self.op = ids, clock, op


class Embedding(nn.Module):
    """Rows of a table at the parameter server, looked up by id; trained there.

    client:         weft.PS from weft.connect. Use thread=1: otherwise other workers may wait for the end of a
                    clock whose packet was lost while this process computes. Not owned: close it after the
                    last step
    table:          number of the table, which is then opened with `options`; or an open weft.Table
                    (then without options)
    num_embeddings: ids are 0 .. num_embeddings - 1
    embedding_dim:  floats in a row; at most the client's dim_max (64 by default)
    padding_idx:    id that reads as zeros and has no gradient; it is never sent. Negative: from the end
    mode:           None: as nn.Embedding. "sum" or "mean": as nn.EmbeddingBag
    bound:          fraction of the packets of pulls and pushes that may be missing. A missing row has the value
                    that this worker pulled last; a missing gradient is lost, unless the table has
                    feedback_rows
    prefetched:     number of pulls needed by forward that prefetch() had requested in time
    pulled:         number of pulls that forward had to make

    options are those of weft.PS.table: optimizer ("sgd", "momentum", "adagrad", "adadelay", "adam",
    "ftrl"), learning_rate, consistency ("bsp", "ssp:N", "asp"), average, init_scale and so on. All workers
    must be equal. Unlike there, the default of init_scale is 1 / sqrt(embedding_dim), because rows
    that all begin at zero stay equal: initial weights are uniform in [-init_scale, init_scale).

    The server has the rows and the optimizer's state; the module has the gradients since the last step().
    The module has no parameters: parameters() is empty, and DistributedDataParallel, clip_grad_norm_ and
    optimizers do not see it. The server divides by the number of workers, as DDP does for the dense part
    (docs/TABLES.md, "The mean").

    Thread: one at a time, and the process that connected; a fork is refused with a RuntimeError.
    """

    def __init__(
        self,
        client,
        table,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        mode=None,
        bound=0.0,
        dtype=torch.float32,
        **options,
    ):
        super().__init__()
        if dtype != torch.float32:
            raise TypeError(f"dtype is {dtype}; rows at the parameter server are torch.float32")
        for name, value in (("num_embeddings", num_embeddings), ("embedding_dim", embedding_dim)):
            if operator.index(value) < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if mode not in (None, "sum", "mean"):
            raise ValueError(f'mode is {mode!r}; choose None, "sum" or "mean"')
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(
                f"padding_idx is {padding_idx}; it must be an id, of {num_embeddings} there are"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.mode = mode
        self.bound = bound
        self.client = client
        # Unknown for a table opened elsewhere: use the strictest mode.
        self.consistency = options.get("consistency", "bsp")
        self.table = self._open(table, options)
        self.prefetched = self.pulled = 0
        self._pid = os.getpid()
        self._ahead = []
        self._gradients = []  # (ids, rows) of backward passes since the last step

    def _open(self, table, options):
        if not isinstance(table, Table):
            options.setdefault("init_scale", self.embedding_dim**-0.5)
            return self.client.table(table, self.embedding_dim, **options)
        if options:
            raise TypeError(f"{table!r} is already open; {', '.join(options)} cannot be changed")
        if table.dim != self.embedding_dim or table.length:
            raise ValueError(
                f"{table!r} cannot hold these rows; it must be sparse, of dim {self.embedding_dim}"
            )
        return table

    # ---- a step: forward, backward, step ----

    def forward(self, input, offsets=None, per_sample_weights=None):
        """Look rows up: pulls the distinct rows in one operation, or uses those that prefetch() has requested.

        Shape:   input: ids, int64 or int32, any shape, 0 ids too -> (*input.shape, embedding_dim) float32.
                 With `mode`, as nn.EmbeddingBag: (bags, n), or (n,) with offsets (bags,) ->
                 (bags, embedding_dim); per_sample_weights, of input's shape, with "sum" only.
        Device:  that of input; rows go through the CPU's memory.
        Grad:    where gradients are enabled, a backward pass keeps the rows' gradients for step(). In eval
                 mode too, as nn.Embedding; under no_grad nothing is kept. A forward that no backward
                 follows leaves nothing behind. Second derivatives through the rows are refused by
                 autograd.
        Errors:  TypeError   ids that are no int32 or int64.
                 IndexError  an id out of range. Nothing was sent.
                 weft.Error  a server is gone (weft.PeerError) or refuses (weft.DataError).
        Blocks:  until the rows arrive: in "bsp" until all workers have ended the same clocks as this
                 one, in "ssp:N" all but N of them.
        """
        self._check_use(offsets, per_sample_weights)
        ids, places = self._distinct(input)
        rows = self._fetch(ids)
        if len(ids) == 0 or self.padding_idx is not None:
            rows = np.concatenate((rows, np.zeros((1, self.embedding_dim), np.float32)))
        rows = torch.from_numpy(rows).to(input.device)
        if torch.is_grad_enabled():
            rows = _Rows.apply(torch.empty(0, requires_grad=True), rows, self, ids)
        padding = None if self.padding_idx is None else len(ids)
        if self.mode is None:
            return F.embedding(places, rows, padding_idx=padding)
        return F.embedding_bag(
            places,
            rows,
            None if offsets is None else offsets.to(places.dtype),
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            padding_idx=padding,
        )

    def prefetch(self, input):
        """Request the rows of a later batch, and return at once.

        Packets are sent while this process calls weft, or at any time with weft.connect(thread=1).
        The forward of a batch with the same distinct ids uses the rows. In "bsp" and "ssp" it does so only in
        the clock of the request, so call it after step(): rows of an earlier clock are fetched again. In
        "asp" the rows have the values at the time of the server's reply, without this worker's later gradients.

        Errors:  as forward; weft.AgainError  the client's ops_max operations are in progress.
                 RuntimeError  AHEAD_MAX (4) batches are waiting: call forward with them, or forget().
                 A batch of more distinct ids than the client's rows_max is not prefetched.
        """
        self._check_process()
        ids, _ = self._distinct(input)
        if len(ids) > self.client.rows_max:
            return
        self._ahead = [one for one in self._ahead if self._fresh(one)]
        if len(self._ahead) >= AHEAD_MAX:
            raise RuntimeError(
                f"{AHEAD_MAX} batches are already prefetched; call forward with them in the order "
                "of prefetch, or forget()"
            )
        op = self.table.pull_async(ids, bound=self.bound)
        self._ahead.append(_Ahead(ids, self.table.clocks_ended, op))

    def step(self, scale=1.0):
        """Push the gradients since the last step, summed by row, in one push; then end this worker's clock.

        Call it equally often on every rank, also on a rank without a batch: others wait for its clock.
        Several backward passes before it are gradient accumulation: their gradients are summed.

        scale:  gradients are divided by it: scaler.get_scale() of automatic mixed precision

        Blocks:  until the push has arrived, not for other workers.
        -> weft.Result of the push; None if there was nothing to push
        Errors:  weft.DataError  the server refuses gradients that are infinite or not a number (table option
                                 not_finite), or has no room for new rows. The packets that it refused
                                 are lost, the others are applied, and the clock has not ended: call step()
                                 again to continue without them, or end the process.
                 weft.PeerError  a server is gone: end the process and start from a checkpoint.
        """
        self._check_process()
        ids, rows = self._summed(scale)
        self.zero_grad()
        result = self.table.push(ids, rows, bound=self.bound) if len(ids) else None
        self.table.clock()
        return result

    def zero_grad(self, set_to_none=True):
        """Drop the gradients since the last step: after an exception, or to skip a step.

        zero_grad() of an optimizer, or of an enclosing module, does not call it.
        """
        self._gradients = []

    def forget(self):
        """Drop prefetched rows."""
        self._ahead = []

    # ---- rows, outside of training ----

    def export(self, ids=None):
        """The current rows of the server. -> (n, embedding_dim) float32, a new tensor

        ids: (n,) int64 or int32, in any order, or None = all num_embeddings of them. The row of padding_idx
        is zeros. nn.Embedding.from_pretrained(rows.export()) is the same embedding without weft.
        In "bsp" it waits for other workers as forward does.
        """
        self._check_process()
        if ids is None:
            rows = self.table.pull(np.arange(self.num_embeddings))
            if self.padding_idx is not None:
                rows[self.padding_idx] = 0
            return torch.from_numpy(rows)
        distinct, places = self._distinct(ids)
        rows = self.table.pull(distinct) if len(distinct) else self._none()
        rows = np.concatenate((rows, np.zeros((1, self.embedding_dim), np.float32)))
        return torch.from_numpy(rows)[places.cpu()]

    def get_extra_state(self):
        """For state_dict(): identifies the table, without rows. Those are in the servers' checkpoints
        (client.checkpoint(), docs/CHECKPOINTS.md), or in what export() returns."""
        return {
            "about": f"{_AT_SERVER}; export() reads them, client.checkpoint() saves them",
            "table": self.table.number,
            "num_embeddings": self.num_embeddings,
            "embedding_dim": self.embedding_dim,
        }

    def set_extra_state(self, state):
        for name in ("table", "num_embeddings", "embedding_dim"):
            mine = self.get_extra_state()[name]
            if state.get(name) != mine:
                raise ValueError(
                    f"the state is of an Embedding with {name} {state.get(name)}, this one has {mine}; "
                    "construct it like the saved one"
                )

    def _load_from_state_dict(self, state_dict, prefix, *arguments):
        if prefix + "weight" in state_dict:
            arguments[-1].append(
                f"{prefix}weight cannot be loaded: {_AT_SERVER}; remove it from the state, and start "
                "the servers from a checkpoint of theirs (weft server --restore)"
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def __reduce_ex__(self, protocol):
        raise TypeError(
            f"a weft.torch.Embedding cannot be copied or pickled: {_AT_SERVER}, and a copy would train "
            "the same ones; save state_dict(), or nn.Embedding.from_pretrained(module.export())"
        )

    def _apply(self, function, *arguments, **named):
        kind = function(torch.empty(0)).dtype
        if kind != torch.float32:
            raise TypeError(f"{_AT_SERVER} and are torch.float32; they cannot be made {kind}")
        return super()._apply(function, *arguments, **named)

    def extra_repr(self):
        words = [str(self.num_embeddings), str(self.embedding_dim), f"table={self.table.name!r}"]
        for name in ("padding_idx", "mode"):
            if getattr(self, name) is not None:
                words.append(f"{name}={getattr(self, name)!r}")
        return ", ".join(words)

    # ---- internal ----

    def _check_process(self):
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this process was forked from the one that connected to the servers; use the Embedding "
                "there, or call weft.connect here"
            )

    def _check_use(self, offsets, per_sample_weights):
        self._check_process()
        if self.mode is None and (offsets is not None or per_sample_weights is not None):
            raise TypeError('offsets and per_sample_weights are for mode="sum" or "mean"')

    def _distinct(self, input):
        """-> the distinct ids of a batch, ascending, without padding; and the index of each id in that list.
        The index of padding is one past its end."""
        if not isinstance(input, torch.Tensor) or input.dtype not in (torch.int64, torch.int32):
            kind = input.dtype if isinstance(input, torch.Tensor) else type(input).__name__
            raise TypeError(f"ids are {kind}; they must be a tensor of torch.int64 or torch.int32")
        flat = input.detach().reshape(-1).cpu().to(torch.int64).numpy()
        if len(flat) and (flat.min() < 0 or flat.max() >= self.num_embeddings):
            wrong = flat[(flat < 0) | (flat >= self.num_embeddings)][0]
            raise IndexError(
                f"id {wrong} is out of range; this Embedding has {self.num_embeddings} rows, from 0"
            )
        if self.padding_idx is None:
            ids, places = np.unique(flat, return_inverse=True)
        else:
            real = flat != self.padding_idx
            ids, of_real = np.unique(flat[real], return_inverse=True)
            places = np.full(len(flat), len(ids), np.int64)
            places[real] = of_real
        places = torch.from_numpy(places.astype(np.int64, copy=False))
        return ids, places.reshape(input.shape).to(input.device)

    def _none(self):
        return np.zeros((0, self.embedding_dim), np.float32)

    def _fresh(self, ahead):
        return self.consistency == "asp" or ahead.clock == self.table.clocks_ended

    def _fetch(self, ids):
        if not len(ids):
            return self._none()
        self._ahead = [one for one in self._ahead if self._fresh(one)]
        for i, ahead in enumerate(self._ahead):
            if np.array_equal(ahead.ids, ids):
                del self._ahead[i]
                self.prefetched += 1
                return ahead.op.wait()
        self.pulled += 1
        return self.table.pull(ids, bound=self.bound)

    def _take(self, ids, gradient):
        if len(ids):
            rows = gradient[: len(ids)].detach().cpu().contiguous().numpy()
            self._gradients.append((ids, rows))
        if len(self._gradients) == UNSTEPPED_WARN:
            warnings.warn(
                f"{UNSTEPPED_WARN} backward passes without step() of a weft.torch.Embedding: their "
                "gradients are kept; call step() after each step, or zero_grad()",
                RuntimeWarning,
                stacklevel=2,
            )

    def _summed(self, scale):
        """The summed gradients of all backward passes, one row per id."""
        if not self._gradients:
            return np.zeros(0, np.int64), self._none()
        ids, rows = self._gradients[0]
        if len(self._gradients) > 1:
            every = np.concatenate([one for one, _ in self._gradients])
            ids, places = np.unique(every, return_inverse=True)
            total = torch.zeros(len(ids), self.embedding_dim)
            for_all = torch.from_numpy(np.concatenate([one for _, one in self._gradients]))
            rows = total.index_add_(0, torch.from_numpy(places.reshape(-1)), for_all).numpy()
        return ids, rows if scale == 1.0 else rows / np.float32(scale)
