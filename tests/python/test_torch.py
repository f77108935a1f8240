"""weft.torch with the PyTorch that is installed: ranks are processes. Prints TAP; run by
tests/cli/torch.sh."""

import collections
import contextlib
import datetime
import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
import weakref

import tap
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft.torch
from weft.torch import ProcessGroupWeft, staging

torch.set_num_threads(1)
os.environ["WEFT_PEER_TIMEOUT_S"] = "5"  # the default, which the tests of make test lengthen
TIMEOUT = datetime.timedelta(seconds=60)
EARLY_S = 30  # before TIMEOUT: an error that came earlier is not that of a timeout, also on a busy machine


def _rank(work, backend, rank, ranks, folder, queue, goodbye, arguments):
    try:
        store = dist.FileStore(os.path.join(folder, "store"), ranks)
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)
        saved = io.BytesIO()
        torch.save(work(rank, ranks, *arguments), saved)
        queue.put((rank, None, saved.getvalue()))
        if goodbye:
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:
        queue.put((rank, traceback.format_exc(), None))


def job(work, *arguments, ranks=3, backend="weft", silent=0, goodbye=True, daemon=True):
    """Run work(rank, ranks, ...) in a process for each rank. -> their results

    silent: ranks that say nothing, because the test ends them. goodbye: they leave together.
    """
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(
                target=_rank,
                args=(work, backend, rank, ranks, folder, queue, goodbye, arguments),
                daemon=daemon,
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        results, wrong = {}, []
        for _ in range(ranks - silent):
            rank, failure, saved = queue.get(timeout=120)
            if failure is None:
                results[rank] = torch.load(io.BytesIO(saved), weights_only=False)
            else:
                wrong.append(f"rank {rank}: {failure}")
        for process in processes:
            process.join(0 if wrong or silent or not goodbye else 60)
            process.kill()
            process.join()
    if wrong:
        raise AssertionError("\n".join(wrong))
    return [results.get(rank) for rank in range(ranks)]


# ---- operations ----


def every_call(rank, ranks, offered=True):
    """Each function of torch.distributed. offered: all of them are there; what Gloo lacks, which depends
    on its age, is left out."""
    got = {}
    for name, call in CALLS.items():
        try:
            got[name] = call(rank, ranks, torch.full((2, 3), float(rank)))
        except RuntimeError:
            if offered:
                raise
    dist.barrier()
    return got


def _all_reduce(t, **how):
    dist.all_reduce(t, **how)
    return t


def _reduce(rank, ranks, me):
    dist.reduce(me, 1)
    return me if rank == 1 else None


def _broadcast(t, root):
    dist.broadcast(t, root)
    return t


def _all_gather(rank, ranks, me):
    parts = [torch.zeros(2, 3) for _ in range(ranks)]
    dist.all_gather(parts, me)
    return torch.stack(parts)


def _into(call, shape, *arguments):
    t = torch.zeros(shape)
    call(t, *arguments)
    return t


def _gather(rank, ranks, me):
    parts = [torch.zeros(2, 3) for _ in range(ranks)] if rank == 1 else None
    dist.gather(me, parts, dst=1)
    return torch.stack(parts) if parts else None


def _scatter(rank, ranks, me):
    t = torch.zeros(2, 3)
    dist.scatter(t, [me + i for i in range(ranks)] if rank == 2 else None, src=2)
    return t


def _all_to_all_with_sizes(rank, ranks, me):
    return _into(
        dist.all_to_all_single,
        (ranks * (rank + 1),),
        torch.arange(ranks * (ranks + 1) / 2) + 10 * rank,
        [rank + 1] * ranks,
        list(range(1, ranks + 1)),
    )


def _sparse(rank, ranks, me):
    """Of other places at each rank, some twice."""
    places = torch.tensor([[0, rank, rank + 1] + [2] * rank])
    values = torch.arange(2.0 * places.shape[1]).reshape(-1, 2) + rank
    t = torch.sparse_coo_tensor(places, values, (ranks + 1, 2))
    dist.all_reduce(t)
    return t.to_dense()


def _all_to_all(rank, ranks, me):
    parts = [torch.zeros(i + 1) for i in range(ranks)]
    dist.all_to_all(parts, [torch.full((rank + 1,), float(rank)) for _ in range(ranks)])
    return torch.cat(parts)


def _send_and_recv(rank, ranks, me):
    t = torch.zeros(4)
    if rank == 0:
        dist.send(torch.arange(4.0), 1, tag=3)
        dist.recv(t, 1, tag=4)
    elif rank == 1:
        dist.recv(t, 0, tag=3)
        dist.send(t * 2, 0, tag=4)
    return t


def _objects(rank, ranks, me):
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    return objects


def _future(rank, ranks, me):
    work = dist.all_reduce(me, async_op=True)
    work.wait()
    return work.is_completed(), work.get_future().value()[0]


CALLS = {
    "all_reduce": lambda rank, ranks, me: _all_reduce(me),
    "all_reduce, not contiguous": lambda r, n, me: _all_reduce(me.t(), op=dist.ReduceOp.MAX),
    "all_reduce of bool": lambda rank, ranks, me: _all_reduce(torch.tensor([rank == 0, True])),
    "all_reduce of bfloat16": lambda rank, ranks, me: _all_reduce(
        me.to(torch.bfloat16), op=dist.ReduceOp.PRODUCT
    ),
    "all_reduce of nothing": lambda rank, ranks, me: _all_reduce(torch.zeros(0)),
    "reduce": _reduce,
    "broadcast": lambda rank, ranks, me: _broadcast(me.t(), 2),
    "broadcast of complex": lambda rank, ranks, me: _broadcast(
        torch.full((3,), rank, dtype=torch.complex64), 1
    ),
    "all_gather": _all_gather,
    "all_gather_into_tensor": lambda rank, ranks, me: _into(
        dist.all_gather_into_tensor, (ranks * 2, 3), me
    ),
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": lambda rank, ranks, me: _into(
        dist.reduce_scatter, (2, 3), [me + i for i in range(ranks)]
    ),
    "reduce_scatter_tensor": lambda rank, ranks, me: _into(
        dist.reduce_scatter_tensor, (2,), torch.arange(ranks * 2.0) + rank
    ),
    "all_to_all_single": lambda rank, ranks, me: _into(
        dist.all_to_all_single, (ranks, 2), torch.arange(ranks * 2.0).reshape(ranks, 2) + 10 * rank
    ),
    "all_to_all_single with sizes": _all_to_all_with_sizes,
    "all_to_all": _all_to_all,
    "send and recv": _send_and_recv,
    "all_gather_object": _objects,
    "all_reduce of sparse": _sparse,
    "a future": _future,
}
COMPARED = 12  # of these at least, with any Gloo


def equal(one, two):
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(one, tuple):
        return all(equal(a, b) for a, b in zip(one, two))
    return one == two


def group_of(rank, ranks, **options):
    """A group with options of its communicator, of ranks that have WEFT_TEST_STORE."""
    store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)
    comm = weft.torch.process_group.rendezvous.meet(store, rank, ranks, 60, **options)
    return ProcessGroupWeft(weft.torch.process_group.Engine(comm), rank, ranks, TIMEOUT)


def job_with_store(*arguments, **how):
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEFT_TEST_STORE"] = os.path.join(folder, "again")
        return job(*arguments, **how)


def completed(work):
    """Wait without completing the operation in this thread, as work.wait() would. -> the error, or None"""
    while not work.is_completed():
        time.sleep(0.001)
    return work.failure()


def writes(rank, ranks):
    """Results in tensors that only the library may write without further ado. -> errors, and what is wrong"""
    said, me = [], float(rank + 1)
    total = sum(range(1, ranks + 1))
    parameters = [
        nn.Parameter(torch.full((2, 3, 4, 5), me).to(memory_format=torch.channels_last)),
        nn.Parameter(torch.full((6,), me)),
    ]
    group = dist.distributed_c10d._get_default_group()
    said.append(completed(dist.broadcast(parameters[0], 0, async_op=True)))
    said.append((parameters[0] == 1).all().item())
    with torch.no_grad():
        parameters[0].fill_(me)
    dist.broadcast(parameters[0], 1)  # completed by this thread
    said.append((parameters[0] == 2).all().item())
    said.append(completed(group.allreduce_coalesced([parameters[1]])))
    said.append((parameters[1] == total).all().item())
    parts = [torch.zeros(rank + 1) for _ in range(ranks)]
    dist.all_to_all(parts, [torch.full((i + 1,), me, requires_grad=True) for i in range(ranks)])
    said.append([part.requires_grad for part in parts])
    said.append(torch.cat(parts).sum().item() == total * me)
    with torch.inference_mode():
        outputs = [torch.zeros(2) for _ in range(ranks)]
        said.append(completed(dist.all_gather(outputs, torch.full((2,), me), async_op=True)))
        said.append([output[0].item() for output in outputs])
    return said


def staged_writes(rank, ranks):
    staging.of = lambda tensors: FakeDevice(0)
    return writes(rank, ranks)


class Backend(unittest.TestCase):
    def test_every_call_gives_what_gloo_gives(self):
        weft_s = job(every_call)
        gloo = job(_every_call_of_gloo, backend="gloo")
        for rank, (one, two) in enumerate(zip(weft_s, gloo)):
            self.assertEqual(set(one), set(CALLS))
            self.assertGreaterEqual(len(two), COMPARED)
            for name, value in two.items():
                self.assertTrue(
                    equal(one[name], value), f"{name} at rank {rank}: {one[name]}, {value}"
                )

    def test_one_rank(self):
        def alone(rank, ranks):
            t = torch.ones(3)
            dist.all_reduce(t)
            out = torch.zeros(1, 2)
            dist.all_to_all_single(out, torch.ones(1, 2))
            dist.all_to_all([out], [torch.full((1, 2), 5.0)])
            return t.sum().item() + out.sum().item()

        self.assertEqual(job(alone, ranks=1), [13])

    def test_who_has_waited_finds_the_future_complete(self):
        work = weft.torch.process_group.WeftWork("all_reduce", torch.ones(1))
        seen = []
        release, work._over.set = work._over.set, lambda: (
            seen.append(work.get_future().done()),
            release(),
        )
        work.get_future().then(lambda _: seen.append(work.is_completed()))
        work.ended(None, None)
        self.assertEqual(seen, [True, True])
        self.assertTrue(work.wait())

    def test_several_operations_have_ended_after_their_results(self):
        group = weft.torch.process_group
        for fails in (False, True):
            inner, seen = group.WeftWork("recv", []), []

            def finish():
                seen.append((several.is_completed(), several.is_success()))
                if fails:
                    raise ValueError("no room")

            several = group._Several([inner], [], finish)
            inner.ended(None, None)
            self.assertEqual(seen, [(False, False)])
            self.assertEqual((several.is_completed(), several.is_success()), (True, not fails))
            self.assertEqual("no room" in (several.failure() or ""), fails)

    def test_ctrl_c_within_what_follows_an_operation_ends_it(self):
        def interrupted():
            raise KeyboardInterrupt

        work = weft.torch.process_group.WeftWork("all_gather", [], interrupted)
        with self.assertRaises(KeyboardInterrupt):
            work.ended(None, None)
        self.assertTrue(work.is_completed())
        with self.assertRaisesRegex(RuntimeError, "all_gather: after the operation: KeyboardInterrupt"):
            work.wait()

    def test_kept_works_hold_few_tensors(self):
        """With PyTorch before 2.7 the last 1,024 are kept."""

        def begins(rank, ranks):
            group = dist.distributed_c10d._get_default_group()
            group._works = collections.deque(maxlen=1024)
            tensors, held = [], torch.full((4,), 2.0)
            early = dist.all_reduce(held, async_op=True)
            for _ in range(100):
                for call in (dist.all_gather, dist.all_to_all):
                    outputs = [torch.zeros(4)]
                    call(outputs, torch.ones(4) if call is dist.all_gather else [torch.ones(4)])
                    tensors.append(weakref.ref(outputs[0]))
            outputs = None
            ended = [work.wait() for work in group._works]
            alive = sum(tensor() is not None for tensor in tensors)
            return alive < 50, len(ended) > 200, all(ended), early.result()[0] is held

        self.assertEqual(job(begins, ranks=1), [(True,) * 4])

    def test_kept_works_that_were_in_use_release_their_tensors_later(self):
        def begins(rank, ranks):
            group = dist.distributed_c10d._get_default_group()
            group._works = collections.deque(maxlen=1024)
            tensors, works = [], []
            for _ in range(100):
                tensor = torch.ones(4)
                tensors.append(weakref.ref(tensor))
                works.append(dist.all_reduce(tensor, async_op=True))
            for work in works:
                work.wait()
            held = sum(one() is not None for one in tensors)
            del tensor, works, work
            for _ in range(110):
                dist.all_reduce(torch.ones(4))
            return held, sum(one() is not None for one in tensors)

        self.assertEqual(job(begins, ranks=1), [(100, 0)])

    def test_a_hook_has_the_timeout_of_its_group(self):
        def times(rank, ranks):
            engine, seen = dist.distributed_c10d._get_default_group()._engine, []
            begin = engine.begin
            engine.begin = lambda *what, **fields: seen.append(fields["timeout_ns"]) or begin(*what, **fields)
            model = DistributedDataParallel(nn.Linear(2, 2))
            model.register_comm_hook(weft.torch.HookState(), weft.torch.allreduce_hook)
            seen.clear()
            model(torch.ones(1, 2)).sum().backward()
            return seen

        self.assertEqual(job(times, ranks=1), [[60_000_000_000]])

    def test_groups(self):
        def grouped(rank, ranks):
            pair = dist.new_group([0, 2])
            t = torch.tensor([rank + 1.0])
            if rank != 1:
                dist.all_reduce(t, group=pair)
            dist.all_reduce(t)
            return t.item()

        self.assertEqual(job(grouped), [10, 10, 10])

    def test_a_group_is_destroyed_alone(self):
        def destroyed(rank, ranks):
            group = dist.new_group(list(range(ranks)))
            dist.destroy_process_group(group)
            t = torch.ones(1)
            dist.all_reduce(t)
            return t.item()

        self.assertEqual(job(destroyed), [3, 3, 3])

    def test_a_group_is_destroyed_while_others_wait(self):
        def waiting(rank, ranks):
            group = dist.new_group(list(range(ranks)))
            said = []

            def wait():
                try:
                    group.recv([torch.zeros(1)], (rank + 1) % ranks, 0).wait()  # nobody sends
                except RuntimeError as error:
                    said.append(str(error))

            threads = [threading.Thread(target=wait) for _ in range(3)]
            for thread in threads:
                thread.start()
            while len(weft.torch.process_group.of(group)._engine._pending) < 3:
                time.sleep(0.001)
            dist.barrier()
            dist.destroy_process_group(group)
            for thread in threads:
                thread.join()
            return said

        for said in job(waiting):
            self.assertEqual(len(said), 3)
            for text in said:
                self.assertRegex(text, "^recv: ")

    def test_groups_are_made_again_in_one_store(self):
        def again(rank, ranks):
            store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)
            sums = []
            for _ in range(3):
                group = weft.torch.ProcessGroupWeft.from_store(store, rank, ranks, TIMEOUT)
                t = torch.ones(1)
                group.allreduce([t]).wait()
                sums.append(t.item())
                group.barrier().wait()
                group.shutdown()
            return sums

        with tempfile.TemporaryDirectory() as folder:
            os.environ["WEFT_TEST_STORE"] = os.path.join(folder, "again")
            self.assertEqual(job(again), [[3, 3, 3]] * 3)

    def test_groups_of_other_sizes_are_made_in_one_store(self):
        def again(rank, ranks):
            store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)
            sums = []
            for size in (4, 4, 2, 2, 1, 3, 4):
                if rank < size:
                    group = weft.torch.ProcessGroupWeft.from_store(store, rank, size, TIMEOUT)
                    t = torch.ones(1)
                    group.allreduce([t]).wait()
                    sums.append(t.item())
                    group.barrier().wait()
                    group.shutdown()
                dist.barrier()
            return sums

        with tempfile.TemporaryDirectory() as folder:
            os.environ["WEFT_TEST_STORE"] = os.path.join(folder, "again")
            want = [[4, 4, 2, 2, 1, 3, 4], [4, 4, 2, 2, 3, 4], [4, 4, 3, 4], [4, 4, 4]]
            self.assertEqual(job(again, ranks=4), want)

    def test_what_weft_has_not_is_said(self):
        def asks(rank, ranks):
            group, said = dist.distributed_c10d._get_default_group(), []
            for call in (
                lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int16)),
                lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int32), op=dist.ReduceOp.AVG),
                lambda: dist.all_gather_into_tensor(torch.zeros(5), torch.zeros(2)),
                lambda: weft.torch.all_reduce(torch.zeros(2), bound=2.0),
                # torch.distributed refuses them itself, in some releases. There is room for more than four bytes.
                lambda: group.alltoall_base(torch.zeros(64, dtype=torch.int8)[:4], torch.zeros(4), [], []),
                lambda: group.alltoall([torch.zeros(64, dtype=torch.int8)[:2]] * 2, [torch.zeros(2)] * 2),
            ):
                try:
                    call()
                    said.append("nothing")
                except Exception as error:
                    said.append(str(error))
            return said

        for said in job(asks, ranks=2):
            for words, sentence in zip(("int16", "means", "all_gather", "bound", "one type", "one type"), said):
                self.assertIn(words, sentence)

    def test_one_or_the_other_loses_by_consent(self):
        def lossy(rank, ranks):
            feedback = weft.coll.Feedback(1000)
            t = torch.full((1000,), 1.0 + rank)
            weft.torch.all_reduce(t, bound=0.1, feedback=feedback)
            u = torch.full((1000,), 1.0 + rank)
            work = weft.torch.all_reduce(u, dist.ReduceOp.AVG, bound=0.1, async_op=True)
            work.wait()
            return t[0].item(), u[0].item()

        self.assertEqual(job(lossy, ranks=2), [(3, 1.5)] * 2)


    def test_results_are_written_in_any_mode(self):
        for work in (writes, staged_writes):
            for said in job(work, ranks=2):
                self.assertEqual(said, [None, True, True, None, True, [False, False], True, None, [1.0, 2.0]])

    def test_what_is_written_is_of_no_inference_mode(self):
        def later(rank, ranks):
            t = torch.sparse_coo_tensor([[rank]], [1.0], (ranks,)).coalesce()
            dist.all_reduce(t)
            return t.values().tolist()  # PyTorch refuses it if they were written in inference mode

        self.assertEqual(job(later, ranks=2), [[1.0, 1.0]] * 2)

    def test_a_callback_begins_more_than_ops_max(self):
        def begins(rank, ranks, waits):
            group = group_of(rank, ranks, ops_max=4)
            tensors = [torch.full((8,), float(i)) for i in range(20)]
            works, names, begun = [], [], threading.Event()

            def more(_):
                names.append(threading.current_thread().name)
                works.extend([group.allreduce([t]) for t in tensors])
                if waits:
                    for work in works[::-1]:
                        work.wait()
                begun.set()

            if rank == 1:
                dist.barrier()  # after rank 0 has its callback, so that its thread calls it
            group.allreduce([torch.ones(1)]).get_future().then(more)
            if rank == 0:
                dist.barrier()
            if not begun.wait(60):
                return "it still waits", names
            for work in works:
                work.get_future().wait()
            group.barrier().wait()
            group.shutdown()
            return [t[0].item() for t in tensors], names

        for waits in (False, True):
            got = job_with_store(begins, waits, ranks=2, goodbye=False)
            self.assertEqual([sums for sums, _ in got], [[2.0 * i for i in range(20)]] * 2)
            self.assertEqual(got[0][1], ["weft"])

    def test_nothing_begins_in_a_group_that_is_being_destroyed(self):
        def closes(rank, ranks):
            group, said = group_of(rank, ranks), []
            comm = group.communicator
            close = comm.close

            def about_to_close():
                for call in (lambda: group.allreduce([torch.ones(1)]), group.abort):
                    try:
                        call()
                        said.append("nothing")
                    except Exception as error:
                        said.append(str(error))
                close()

            comm.close = about_to_close
            group.shutdown()
            return said

        words = "the process group was destroyed"
        self.assertEqual(job_with_store(closes, ranks=1), [[f"weft: all_reduce: {words}", words]])

    def test_a_callback_may_destroy_the_group(self):
        def destroys(rank, ranks):
            group, caught = group_of(rank, ranks), []
            threading.excepthook = lambda what: caught.append(str(what.exc_value))
            thread = group._engine._thread
            if rank == 1:
                dist.barrier()
            work = group.allreduce([torch.ones(1)])
            if rank == 0:
                work.get_future().then(lambda _: group.shutdown())
                dist.barrier()
                thread.join()
            with contextlib.suppress(RuntimeError):  # rank 0 may leave before rank 1 has its reply
                work.wait()
            dist.barrier()
            group.shutdown()
            return caught

        self.assertEqual(job_with_store(destroys, ranks=2), [[], []])


def _every_call_of_gloo(rank, ranks):
    """Operations that Gloo lacks, computed with others."""

    def reduce_scatter(output, inputs, *_):
        everything = torch.stack([one.reshape(output.shape) for one in inputs])
        dist.all_reduce(everything)
        output.copy_(everything[rank])

    dist.reduce_scatter = reduce_scatter
    dist.reduce_scatter_tensor = lambda output, source: reduce_scatter(output, source.chunk(ranks))
    dist.all_to_all = lambda outputs, inputs: dist.all_to_all_single(
        (flat := torch.zeros(sum(one.numel() for one in outputs))),
        torch.cat([one.reshape(-1) for one in inputs]),
        [one.numel() for one in outputs],
        [one.numel() for one in inputs],
    ) or [out.copy_(part) for out, part in zip(outputs, flat.split([o.numel() for o in outputs]))]
    return every_call(rank, ranks, offered=False)


# ---- training ----


class Model(nn.Module):
    """BatchNorm, an unused parameter, and layers of several sizes."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 300), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 1))
        self.unused = nn.Linear(5, 5)

    def forward(self, x):
        return self.body(x)


def train(rank, ranks, steps, bound=None, feedback=True, inject=0, hook_options=None):
    torch.manual_seed(1)
    model = DistributedDataParallel(Model(), find_unused_parameters=True, bucket_cap_mb=0.01)
    state = None
    if bound is not None:
        options = {"inject_loss_ppm": inject, "packet_bytes": 1472} if inject else {}
        state = weft.torch.HookState(bound=bound, feedback=feedback, **options)
        model.register_comm_hook(state, weft.torch.allreduce_hook)
    other = dist.new_group(list(range(ranks)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        x = torch.randn(16, 20, generator=generator)
        y = x.sum(1, keepdim=True)
        if step % 10 == 3:  # gradients of two batches
            with model.no_sync():
                ((model(x) - y) ** 2).mean().backward()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=other)
    values = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    missing = state.elements_missing if state else 0
    return values, mean.item() / ranks, missing


def train_sparse(rank, ranks, bound=None):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(50, 4, sparse=True), nn.Linear(4, 1))
    model = DistributedDataParallel(model)
    if bound is not None:
        state = weft.torch.HookState(bound=bound)
        model.register_comm_hook(state, weft.torch.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        x = torch.randint(50, (8,), generator=torch.Generator().manual_seed(10 * step + rank))
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class Training(unittest.TestCase):
    def test_sparse_gradients(self):
        gloo = job(train_sparse, ranks=2, backend="gloo")
        for got in (
            job(train_sparse, ranks=2),
            job(train_sparse, 0.1, ranks=2),
            job(train_sparse, 0.1, ranks=2, backend="gloo"),
        ):
            self.assertTrue(torch.equal(got[0], got[1]))
            self.assertTrue(torch.allclose(got[0], gloo[0], rtol=1e-4, atol=1e-5))

    def test_ddp_as_over_gloo(self):
        weft_s, gloo = job(train, 60), job(train, 60, backend="gloo")
        for values, loss, _ in weft_s:
            self.assertTrue(torch.equal(values, weft_s[0][0]))
            self.assertTrue(torch.allclose(values, gloo[0][0], rtol=1e-4, atol=1e-5))
        self.assertLess(weft_s[0][1], 5)

    def test_the_hook_over_weft(self):
        hook, plain = job(train, 60, 0.0), job(train, 60)
        self.assertTrue(torch.allclose(hook[0][0], plain[0][0], rtol=1e-4, atol=1e-5))

    def test_a_thousand_steps_with_losses_end_equal(self):
        got = job(train, 1000, 0.2, True, 50_000, backend="gloo")
        for values, _, _ in got:
            self.assertTrue(torch.equal(values, got[0][0]))
        self.assertGreater(sum(missing for _, _, missing in got), 0)
        self.assertLess(got[0][1], 3)  # from 21

    def test_losses_without_feedback(self):
        got = job(train, 200, 0.2, False, 50_000, backend="gloo")
        self.assertTrue(torch.equal(got[1][0], got[0][0]))
        self.assertGreater(sum(missing for _, _, missing in got), 0)


# ---- an aggregation box ----


def boxed(rank, ranks):
    """A large sum of the default group, others of another group. -> counters of both"""
    other = dist.new_group(list(range(ranks)))
    t = torch.full((100_000,), rank + 1.0)
    dist.all_reduce(t)
    assert (t == 6).all()
    dist.all_reduce(t, group=other)
    assert (t == 18).all()
    groups = weft.torch.process_group.of(None), weft.torch.process_group.of(other)
    return [group.communicator.counters() for group in groups]


def two_hooks(rank, ranks):
    """Which of three states of the hook have the box; before the third, the first ends"""
    first, second, third = (weft.torch.HookState() for _ in range(3))
    has = [state.engine().comm.counters()["box_state"] != 0 for state in (first, second)]
    first.engine().close()
    return [*has, third.engine().comm.counters()["box_state"] != 0]


@contextlib.contextmanager
def box_of(members, **settings):
    """An aggregation box as a process, in the environment"""
    command = f"aggregate --dense 127.0.0.1:0 --security none --members {members} --job 4 --float32"
    settings = {"INSECURE": 1, "JOB": 4, "FLOAT32": 1, "TIMEOUT_NS": 60 * 10**9, **settings}
    before = dict(os.environ)
    with subprocess.Popen(
        [os.environ.get("WEFT_BIN", "weft"), *command.split()], stdout=subprocess.PIPE, text=True
    ) as box:
        try:
            os.environ["WEFT_BOX"] = re.match(r"box: ([0-9.]+:[0-9]+),", box.stdout.readline())[1]
            os.environ.update({f"WEFT_BOX_{name}": str(value) for name, value in settings.items()})
            yield box
        finally:
            os.environ.clear()
            os.environ.update(before)
            box.kill()


class Box(unittest.TestCase):
    def test_the_default_group_uses_it(self):
        with box_of(3):
            for default, other in job(boxed):
                self.assertEqual(default["box_operations"], 1)
                self.assertEqual(other["box_state"], 0)

    def test_training_through_it(self):
        def trains(rank, ranks):
            values, loss, missing = train(rank, ranks, 30)
            counters = weft.torch.process_group.of(None).communicator.counters()
            assert counters["box_operations"] >= 30 and counters["box_fallbacks"] == 0, counters
            return values, loss, missing

        with box_of(3, BYTES_MIN=4):
            got = job(trains)
            hook = job(train, 30, 0.0, backend="gloo")
        gloo = job(train, 30, backend="gloo")
        for values, loss, _ in got + hook:
            self.assertTrue(torch.allclose(values, gloo[0][0], rtol=1e-4, atol=1e-5))
        for some in (got, hook):
            for values, _, _ in some:
                self.assertTrue(torch.equal(values, some[0][0]))

    def test_one_communicator_at_a_time_uses_it(self):
        with box_of(2):
            self.assertEqual(job(two_hooks, ranks=2, backend="gloo"), [[True, False, True]] * 2)

    def test_a_dead_one_is_not_needed(self):
        with box_of(3, TIMEOUT_NS=500_000_000) as box:
            box.kill()
            box.wait()
            for default, _ in job(boxed):
                self.assertEqual((default["box_operations"], default["box_fallbacks"]), (0, 1))

    def test_it_has_to_be_asked_for(self):
        with box_of(2, INSECURE=0), self.assertRaises(AssertionError) as caught:
            job(boxed, ranks=2, goodbye=False)
        self.assertIn("not authenticated", str(caught.exception))


# ---- plans ----


def planned(rank, ranks):
    """Large and small sums of the default group. -> its counters"""
    t = torch.full((100_000,), rank + 1.0)
    dist.all_reduce(t)
    assert (t == 6).all()
    dist.all_reduce(t[:5])
    return weft.torch.process_group.of(None).communicator.counters()


class Plan(unittest.TestCase):
    def setUp(self):
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))

    def test_the_environment_names_it(self):
        os.environ.update(WEFT_PLAN="trees", WEFT_LINK_BPS="1000000000")
        for counters in job(planned):
            self.assertEqual((counters["plan_trees"], counters["plan_operations"]), (1, 1))
        del os.environ["WEFT_PLAN"]
        for counters in job(planned):
            self.assertEqual(counters["plan_operations"], 0)

    def test_a_rate_must_be_a_number(self):
        os.environ.update(WEFT_PLAN="auto", WEFT_LINK_BPS="fast")
        with self.assertRaises(AssertionError) as caught:
            job(planned, ranks=2, goodbye=False)
        self.assertIn("WEFT_LINK_BPS is 'fast'; it must be a number", str(caught.exception))


# ---- tensors of a GPU ----


class FakeDevice:
    """In place of a GPU: its memory is the CPU's, and its stream works a while later, or at once."""

    def __init__(self, delay):
        self.delay, self.log = delay, []

    def to_host(self, given, taken):
        self.log.append("to host")
        room = [torch.empty(one.shape, dtype=one.dtype) for one in taken]
        hosts = [one.contiguous().clone() for one in given]
        assert not any(host.requires_grad for host in hosts)
        return hosts, room

    def from_host(self, pairs):
        event = threading.Event()

        def copy():
            time.sleep(self.delay)
            for tensor, host in pairs:
                staging.put(tensor, host)
            event.set()

        self.log.append("from host")
        if self.delay:
            threading.Thread(target=copy).start()
        else:
            copy()
        return event

    def future(self):
        return torch.futures.Future()

    def follow(self, event):
        self.log.append("follow")
        event.wait()


class StreamDevice(FakeDevice):
    """Its copies are made when something runs in a stream that follows them, not by time."""

    def __init__(self):
        super().__init__(0)
        self._thread = threading.local()

    def from_host(self, pairs):
        return lambda: FakeDevice.from_host(self, pairs)

    def stream(self):
        """The calling thread's current one: the events that its work follows."""
        if not hasattr(self._thread, "stream"):
            self._thread.stream = []
        return self._thread.stream

    @contextlib.contextmanager
    def fresh_stream(self, events):
        before, self._thread.stream = self.stream(), list(events)
        yield
        self._thread.stream = before

    def follow(self, event):
        self.stream().append(event)

    def read(self, tensor):
        """As work in the current stream does."""
        for event in self.stream():
            event()
        return tensor[0].item()

    def future(self):
        return StreamFuture(self)


class StreamFuture:
    """As torch.futures.Future(devices=[...]) is with CUDA."""

    def __init__(self, device):
        self._device = device
        self._lock, self._done = threading.Lock(), threading.Event()
        self._events, self._callbacks = [], []

    def set_result(self, value):
        with self._lock:
            if value is not None:  # it records events only for the devices of tensors in the value
                self._events = list(self._device.stream())
            self._value = value
            self._done.set()
        for callback in self._callbacks:
            self._call(callback)

    def _call(self, callback):
        with self._device.fresh_stream(self._events):
            callback(self)

    def add_done_callback(self, callback):
        with self._lock:
            done = self._done.is_set()
            if not done:
                self._callbacks.append(callback)
        if done:
            self._call(callback)

    def then(self, callback):
        child = StreamFuture(self._device)
        self.add_done_callback(lambda _: child.set_result(callback(self)))
        return child

    def done(self):
        return self._done.is_set()

    def value(self):
        return self._value

    def wait(self):
        self._done.wait()
        self._device.stream().extend(self._events)
        return self._value


def collect_all(futures):
    """As that of torch.futures: a future of the CPU, which records no events."""
    every, lock = torch.futures.Future(), threading.Lock()
    left = list(futures)

    def one_is_done(future):
        with lock:
            left.remove(future)
            last = not left
        if last:
            every.set_result(futures)

    for future in futures:
        future.add_done_callback(one_is_done)
    return every


def staged_futures(rank, ranks):
    """What work after a future reads, in a callback and in the waiting thread."""
    device = StreamDevice()
    staging.of = lambda tensors: device
    torch.futures.collect_all = collect_all
    group = dist.distributed_c10d._get_default_group()

    def reduce():
        t = torch.full((4,), rank + 1.0)
        return t, group.allreduce([t])

    def gather_two():
        outputs = [torch.zeros(ranks) for _ in range(2)]
        return outputs[1], group.allgather_into_tensor_coalesced(outputs, [torch.full((1,), 3.0)] * 2)

    got = []
    for begin in (reduce, gather_two):
        t, work = begin()
        work.get_future().wait()
        got.append(device.read(t))
        t, work = begin()
        work.get_future().then(lambda _: got.append(device.read(t))).wait()
    return got


def staged_calls(rank, ranks, delay):
    device = FakeDevice(delay)
    staging.of = lambda tensors: device
    del CALLS["all_reduce of sparse"]  # those are of the CPU
    return every_call(rank, ranks), device.log


def staged_training(rank, ranks, bound):
    device = FakeDevice(0)
    staging.of = lambda tensors: device
    return train(rank, ranks, 20, bound)


class Staging(unittest.TestCase):
    def test_every_call_gives_what_it_gives_without(self):
        for staged, plain in zip(job(staged_calls, 0.02), job(every_call)):
            self.assertEqual(len(staged[0]), len(CALLS) - 1)
            for name, value in staged[0].items():
                self.assertTrue(equal(value, plain[name]), f"{name}: {value}, {plain[name]}")
            log = staged[1]
            self.assertGreater(log.count("to host"), 15)
            self.assertEqual(log.count("to host"), log.count("from host"))
            # The callback that gives the future its value follows the copies, and so does who waits.
            self.assertEqual(log.count("follow"), 2 * log.count("from host"))

    def test_work_after_a_future_follows_the_copies(self):
        self.assertEqual(job(staged_futures, ranks=2), [[3.0] * 4] * 2)

    def test_training_gives_what_it_gives_without(self):
        for bound in (None, 0.0):
            staged, plain = job(staged_training, bound), job(train, 20, bound)
            self.assertTrue(torch.equal(staged[0][0], plain[0][0]))

    def test_a_failure_is_told(self):
        def alone(rank, ranks):
            staging.of = lambda tensors: FakeDevice(0)
            if rank == 1:
                return "left"
            try:
                dist.all_reduce(torch.ones(1))
            except Exception as error:
                return str(error)
            return "nothing"

        self.assertIn("rank 1", job(alone, ranks=2, goodbye=False)[0])

    def test_another_device_is_refused(self):
        def other(rank, ranks):
            said = []
            for call in (
                lambda: dist.distributed_c10d._get_default_group().allreduce([torch.ones(2, device="meta")]),
                lambda: weft.torch.all_reduce(torch.ones(2, device="meta")),
                lambda: dist.distributed_c10d._get_default_group().alltoall(
                    [torch.ones(1), torch.ones(1)], [torch.ones(1), torch.ones(1, device="meta")]
                ),
            ):
                try:
                    call()
                    said.append("nothing")
                except Exception as error:
                    said.append(str(error))
            return said

        for first, second, third in job(other, ranks=2):
            self.assertIn("is on meta; weft takes those of the CPU and of CUDA", first)
            self.assertIn("is on meta", second)
            self.assertIn("tensors on cpu, meta", third)


# ---- failures ----


class Failures(unittest.TestCase):
    def _a_rank_gets(self, number):
        def trains(rank, ranks):
            model = DistributedDataParallel(nn.Linear(10, 10))
            for step in range(10_000):
                if rank == 1 and step == 5:
                    os.kill(os.getpid(), number)
                begin = time.monotonic()
                try:
                    model(torch.ones(2, 10)).sum().backward()
                except Exception as error:
                    return str(error), time.monotonic() - begin
            return "nothing", 0

        got = job(trains, silent=1, goodbye=False)
        for words, seconds in (got[0], got[2]):
            self.assertIn("rank 1", words)
            self.assertLess(seconds, EARLY_S)

    def test_a_killed_rank_is_named_in_backward(self):
        self._a_rank_gets(signal.SIGKILL)

    def test_a_frozen_rank_is_named_in_backward(self):
        self._a_rank_gets(signal.SIGSTOP)

    def _await(self, store, ranks):
        """Until so many ranks have ended their operation"""
        while store.add("ended", 0) < ranks:
            time.sleep(0.005)

    def test_monitored_barrier_names_who_does_not_come(self):
        def barrier(rank, ranks):
            store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)
            dist.barrier()  # so that ranks 0 and 1 come at the same time
            if rank == 2:
                self._await(store, 2)
                return "late"
            try:
                weft.torch.monitored_barrier(timeout=datetime.timedelta(seconds=2))
            except Exception as error:
                return str(error)
            finally:
                store.add("ended", 1)
            return "nothing"

        got = job_with_store(barrier, goodbye=False)
        self.assertIn("rank 2", got[0])
        self.assertIn("rank 2", got[1])

    def test_a_barrier_has_a_timeout_of_its_own(self):
        def barrier(rank, ranks):
            store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)
            if rank == 1:
                self._await(store, 1)
                return "late"
            options = dist.distributed_c10d.BarrierOptions()
            options.timeout = datetime.timedelta(seconds=0.5)
            try:
                dist.distributed_c10d._get_default_group().barrier(options).wait()
            except Exception as error:
                return str(error)
            finally:
                store.add("ended", 1)
            return "nothing"

        said = job_with_store(barrier, ranks=2, goodbye=False)[0]
        self.assertIn("barrier: timeout of 0.5 s: rank 1 has not entered operation 0", said)

    def _meets(self, work, ranks=2, seconds=2):
        """work(rank, store) in processes, before any group. -> (what was said, after how long) of each"""

        def meets(rank, ranks):
            store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)
            begin = time.monotonic()
            try:
                if work(rank, store):
                    return "", 0
                timeout = datetime.timedelta(seconds=seconds)
                weft.torch.ProcessGroupWeft.from_store(store, rank, ranks, timeout)
            except Exception as error:
                return str(error), time.monotonic() - begin
            return "nothing", time.monotonic() - begin

        with tempfile.TemporaryDirectory() as folder:
            os.environ["WEFT_TEST_STORE"] = os.path.join(folder, "again")
            return job(meets, ranks=ranks, goodbye=False)

    def test_calls_that_differ_are_said(self):
        calls = {
            "all_reduce": lambda rank, t: dist.all_reduce(t) if rank else dist.broadcast(t, 0),
            "x 5": lambda rank, t: dist.all_reduce(torch.ones(4 + rank)),
            "float64": lambda rank, t: dist.all_reduce(t.double() if rank else t),
            "max": lambda rank, t: dist.all_reduce(t, dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM),
            "bound": lambda rank, t: weft.torch.all_reduce(t, bound=0.1 * rank),
        }

        def differ(rank, ranks, name):
            begin = time.monotonic()
            try:
                calls[name](rank, torch.ones(4))
                dist.barrier()
            except Exception as error:
                return str(error), time.monotonic() - begin
            return "nothing", 0

        for name in calls:
            for said, seconds in job(differ, name, ranks=2, goodbye=False):
                self.assertIn(name, said)
                self.assertIn("rank 0", said)
                self.assertIn("rank 1", said)
                self.assertLess(seconds, EARLY_S)

    def test_blocks_that_one_side_expects_empty_are_said(self):
        def differ(rank, ranks):
            try:
                dist.all_to_all_single(torch.zeros(0), torch.zeros(2 - 2 * rank), [0, 0], [0, 2 - 2 * rank])
                dist.barrier()
            except Exception as error:
                return str(error)
            return "nothing"

        for said in job(differ, ranks=2, goodbye=False):
            self.assertRegex(said, "rank 1 called recv.float32 x 0.*rank 0 send.float32 x 2")

    def test_ranks_of_a_group_are_those_of_the_job_too(self):
        def differ(rank, ranks):
            pair = dist.new_group([0, 2])
            if rank == 1:
                return None
            try:
                dist.all_reduce(torch.ones(2 + rank), group=pair)
            except Exception as error:
                return str(error)
            return "nothing"

        said = job(differ, goodbye=False)
        for one in (said[0], said[2]):
            self.assertRegex(one, "rank 1 .*[(]rank 1 of this group is rank 2 of the job[)]$")

    def test_a_data_loader_forks(self):
        def loads(rank, ranks):
            total = torch.zeros(1)
            data = torch.utils.data.TensorDataset(torch.arange(12.0))
            for _ in range(2):
                for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2):
                    t = batch.sum().reshape(1)
                    dist.all_reduce(t)
                    total += t
            return total.item()

        self.assertEqual(job(loads, ranks=2, daemon=False), [264, 264])

    def test_ctrl_c_of_a_forked_process_is_its_own(self):
        def interrupts(rank, ranks):
            signal.signal(signal.SIGINT, signal.default_int_handler)
            ready, tell = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.write(tell, b"1")
                    time.sleep(60)
                except KeyboardInterrupt:
                    os._exit(3)
                os._exit(4)
            os.read(ready, 1)
            os.kill(child, signal.SIGINT)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            seen = weft.torch.engine._interrupts
            seen.look()
            return status, seen._read >= 0, seen.last

        self.assertEqual(job(interrupts, ranks=1), [(3, True, 0.0)])

    def test_a_group_with_a_callback_that_waits_can_be_destroyed(self):
        """The callback, in the engine's thread or within wait(), waits for an operation that the other rank
        never calls."""

        def destroys(rank, ranks, how):
            begins, over = (os.environ["WEFT_TEST_STORE"] + name for name in ("begins", "over"))

            def until(condition):
                while not condition():
                    time.sleep(0.005)

            if rank == 1:
                until(lambda: os.path.exists(begins))
                dist.all_reduce(torch.ones(1))
                until(lambda: os.path.exists(over))
                return "left"
            group = dist.distributed_c10d._get_default_group()
            inside, said = threading.Event(), []

            def waits(_):
                inside.set()
                try:
                    never.wait()
                except Exception as error:
                    said.append(str(error))

            before = dist.all_reduce(torch.ones(1), async_op=True)
            never = dist.all_reduce(torch.ones(2), async_op=True)
            before.get_future().then(waits)
            if how == "wait":
                threading.Thread(target=before.wait, daemon=True).start()
                until(lambda: group._engine._waiting)
            open(begins, "w").close()
            inside.wait(60)
            time.sleep(0.05)  # until it waits
            closes = threading.Thread(target=group.shutdown, daemon=True)
            closes.start()
            closes.join(30)
            open(over, "w").close()
            return closes.is_alive(), said, never.failure()

        for how in ("engine", "wait"):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["WEFT_TEST_STORE"] = os.path.join(folder, "")
                hangs, said, failure = job(destroys, how, ranks=2, goodbye=False)[0]
                self.assertEqual((hangs, said), (False, ["the process group was destroyed"]))
                self.assertIn("destroyed while this operation was in progress", failure)

    def test_a_group_in_a_forked_process_raises(self):
        """Also if a thread of its parent had the lock at the fork."""

        def forks(rank, ranks):
            group = dist.distributed_c10d._get_default_group()
            child = None
            with group._engine._lock:
                child = os.fork()
                if child == 0:
                    said = []
                    for call in (group.barrier, group.abort, lambda: group._engine.wait(0, None)):
                        try:
                            call()
                        except Exception as error:
                            said.append("before fork" in str(error))
                    os._exit(0 if said == [True] * 3 else 1)
            until = time.monotonic() + 30
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
                time.sleep(0.01)
            if ended[0] == 0:
                os.kill(child, signal.SIGKILL)
                return "it hangs"
            return os.waitstatus_to_exitcode(ended[1])

        self.assertEqual(job(forks, ranks=1), [0])

    def test_nan_goes_through_and_leaves_no_residual(self):
        def nan(rank, ranks):
            group = group_of(rank, ranks, packet_bytes=1472, inject_loss_ppm=100_000)
            feedback = weft.coll.Feedback(100_000)
            lost = 0
            for step in range(10):
                t = torch.ones(100_000)
                t[::10], t[5::10] = float("nan"), float("inf")
                weft.torch.all_reduce(t, group=group, bound=0.3, feedback=feedback)
                residual = torch.from_numpy(feedback.residual)
                lost += int((residual != 0).sum())
                assert residual.isfinite().all()
            seen = bool(t[::10].isnan().any()), bool(t[5::10].isinf().any()), bool(t[1::10].isfinite().all())
            counted = group.communicator.counters()["nonfinite"]
            group.barrier().wait()
            group.shutdown()
            return *seen, lost > 0, counted > 0

        self.assertEqual(job_with_store(nan, ranks=2), [(True,) * 5] * 2)

    def test_several_hosts_need_a_key(self):
        def other_host(rank, store):
            weft.torch.process_group.rendezvous._place = lambda: f"host {rank}"
            os.environ["WEFT_HOST"] = "127.0.0.1"

        for said, seconds in self._meets(other_host, seconds=60):
            self.assertIn("weft keygen", said)
            self.assertLess(seconds, EARLY_S)

    def test_who_never_comes_is_named(self):
        got = self._meets(lambda rank, store: rank == 1, ranks=3)
        for said, seconds in (got[0], got[2]):
            self.assertIn("rank 1 has not entered the rendezvous within 2 s", said)
            self.assertLess(seconds, EARLY_S)

    def test_who_cannot_come_tells_the_others(self):
        def one_has_no_key(rank, store):
            if rank == 1:
                os.environ["WEFT_KEY_FILE"] = "/none.key"

        got = self._meets(one_has_no_key, seconds=60)
        self.assertIn("/none.key", got[1][0])
        self.assertIn("rank 1 gave up", got[0][0])
        self.assertIn("/none.key", got[0][0])
        self.assertLess(max(seconds for _, seconds in got), EARLY_S)

    def test_a_key_that_not_all_ranks_have_is_said(self):
        def some_have(rank, store):
            if rank == which:
                os.environ["WEFT_JOB_KEY"] = "1" * 64

        for which, words in ((0, "rank 0 has a job key, and rank 1 has none"), (1, "rank 1 has a job key, and rank 0 has none")):
            for said, _ in self._meets(some_have, seconds=60):
                self.assertIn(words, said)

    def test_another_world_size_is_said(self):
        def sizes(rank, ranks):
            store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)
            begin = time.monotonic()
            try:
                weft.torch.ProcessGroupWeft.from_store(store, rank, 2 + (rank == 1), TIMEOUT)
            except Exception as error:
                return str(error), time.monotonic() - begin
            return "nothing", 0

        with tempfile.TemporaryDirectory() as folder:
            os.environ["WEFT_TEST_STORE"] = os.path.join(folder, "again")
            for said, seconds in job(sizes, ranks=2, goodbye=False):
                self.assertRegex(said, "rank [01] has a group of [23] ranks, and rank [01] one of [23]")
                self.assertLess(seconds, EARLY_S)

    def test_another_world_size_is_said_to_all(self):
        def in_turn(rank, ranks, late):
            """Two ranks fill a rendezvous of two. Rank 0 comes before rank 2 compares its size, or late."""
            store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)

            def until(key, number):
                while store.add(key, 0) < number:
                    time.sleep(0.005)

            def compare(meeting, *what, get=weft.torch.process_group.rendezvous._Meeting._get):
                until("weft/0/came", 3)
                return get(meeting, *what)

            until("weft/0/came", (2, 0, 1)[rank])
            if late and rank == 0:
                until("weft/0/wrong", 1)
            elif not late and rank == 2:
                weft.torch.process_group.rendezvous._Meeting._get = compare
            begin = time.monotonic()
            try:
                weft.torch.ProcessGroupWeft.from_store(store, rank, (2, 2, 3)[rank], TIMEOUT)
            except Exception as error:
                return str(error), time.monotonic() - begin
            return "nothing", 0

        for late in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["WEFT_TEST_STORE"] = os.path.join(folder, "again")
                for said, seconds in job(in_turn, late, goodbye=False):
                    self.assertIn("rank 2 has a group of 3 ranks, and rank 1 one of 2", said)
                    self.assertLess(seconds, EARLY_S)

    def test_ranks_meet_again_after_another_world_size(self):
        def twice(rank, ranks):
            store = dist.FileStore(os.environ["WEFT_TEST_STORE"], ranks)
            said = []
            for size in (2 + rank, 2 + rank, 2):
                try:
                    group = weft.torch.ProcessGroupWeft.from_store(store, rank, size, TIMEOUT)
                except Exception as error:
                    said.append(str(error))
                dist.barrier()
            group.barrier().wait()
            group.shutdown()
            return said

        with tempfile.TemporaryDirectory() as folder:
            os.environ["WEFT_TEST_STORE"] = os.path.join(folder, "again")
            for said in job(twice, ranks=2):
                self.assertEqual(len(said), 2)
                for text in said:
                    self.assertRegex(text, "rank [01] has a group of [23] ranks, and rank [01] one of [23]")

    def test_who_waits_for_the_first_rank_tells_the_others(self):
        """The first rank ends before it has said its size."""

        def without_first(rank, store):
            if rank == 0:
                store.add("weft/0/came", 1)
                return True
            while store.add("weft/0/came", 0) == 0:
                time.sleep(0.005)
            if rank == 1:
                weft.torch.ProcessGroupWeft.from_store(store, 1, 3, datetime.timedelta(seconds=1))

        for said, seconds in self._meets(without_first, ranks=3, seconds=60)[1:]:
            self.assertIn("the first rank has not entered the rendezvous within 1 s", said)
            self.assertLess(seconds, EARLY_S)

    def test_another_key_is_said(self):
        def own_key(rank, store):
            os.environ["WEFT_JOB_KEY"] = f"{rank}" * 64

        for said, seconds in self._meets(own_key):
            self.assertIn("key", said)
            self.assertLess(seconds, EARLY_S)

    def test_ctrl_c_in_backward(self):
        self._ctrl_c("model(torch.ones(1, 4)).sum().backward()")

    def test_ctrl_c_in_forward(self):
        self._ctrl_c("model(torch.ones(2, 4))", hit=1)  # whose buffers come from rank 0

    def test_ctrl_c_while_a_callback_waits(self):
        self._ctrl_c(
            "before, never = (dist.all_reduce(torch.ones(i), async_op=True) for i in (1, 2));"
            "after = before.get_future().then(lambda _: never.wait()); store.set('go', '1'); after.wait()",
            other="store.get('go'); dist.all_reduce(torch.ones(1))",
        )

    def test_ctrl_c_at_the_rendezvous(self):
        self._ctrl_c("dist.new_group([0, 1])")

    def test_ctrl_c_at_exit(self):
        self._ctrl_c("sys.exit()", "", exit_too=True)

    def _ctrl_c(self, what, says="Interrupt", exit_too=False, hit=0, other="pass"):
        """A rank is interrupted in what it waits for the other in, which never comes, so that nothing else
        ends the wait; or, at exit, right after."""
        program = f"""
import os, sys, threading, time, torch, torch.distributed as dist
import weft.torch
rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("weft", store=store, rank=rank, world_size=2)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = torch.nn.parallel.DistributedDataParallel(model.eval())
if rank != {hit}:
    {other}
    time.sleep(600)
if {exit_too}:
    dist.all_reduce(torch.ones(1), async_op=True)
print("ready", flush=True)
try:
    {what}
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-c", program, str(rank), os.path.join(folder, "store")],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for rank in range(2)
            ]
            try:
                self.assertEqual(ranks[hit].stdout.readline().strip(), "ready")
                time.sleep(0 if exit_too else 0.5)
                ranks[hit].send_signal(signal.SIGINT)
                said = ranks[hit].communicate(timeout=240)[0]
            finally:
                for process in ranks:
                    process.kill()
                    process.wait()
                    process.stdout.close()
            self.assertIn(says, said)
            self.assertNotIn("terminate called", said)
            self.assertIn(ranks[hit].returncode, (0, 1, -signal.SIGINT))

    def test_a_library_that_is_missing_does_not_break_torch(self):
        environment = dict(os.environ, WEFT_LIBRARY="/none.so")
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import torch, weft_torch_backend; weft_torch_backend.register();"
                "print(torch.ones(2).sum().item())\n"
                "import torch.distributed as dist\n"
                "try: dist.init_process_group('weft', store=dist.HashStore(), rank=0, world_size=1)\n"
                "except Exception as error: print(error)",
            ],
            env=environment,
            capture_output=True,
            text=True,
        )
        self.assertIn("2.0", done.stdout)
        self.assertIn("libweft.so is not found", done.stdout + done.stderr)


if __name__ == "__main__":
    sys.exit(tap.main())
