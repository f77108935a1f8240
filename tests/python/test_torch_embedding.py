"""weft.torch.Embedding against real servers and beside DistributedDataParallel. Prints TAP; run by
tests/cli/torch_embedding.sh."""

import copy
import io
import os
import pickle
import sys
import unittest
import warnings

import numpy as np
import tap
import torch
from test_ps import Servers
from test_torch import job
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft
from weft.torch import Embedding

torch.set_num_threads(1)


def local_of(rows, mode=None, padding_idx=None):
    """The same embedding in this process."""
    kind = nn.Embedding if mode is None else nn.EmbeddingBag
    how = {} if mode is None else {"mode": mode}
    return kind.from_pretrained(rows.export(), freeze=False, padding_idx=padding_idx, **how)


class OneWorker(unittest.TestCase):
    def setUp(self):
        self.servers = Servers(shards=2, workers=1)
        self.addCleanup(self.servers.__exit__)
        self.ps = self.servers.connect(rows_max=1000)
        self.addCleanup(self.ps.abort)

    def make(self, rows=50, dim=4, number=0, **options):
        options.setdefault("learning_rate", 0.5)
        return Embedding(self.ps, number, rows, dim, **options)

    def test_a_step_is_that_of_nn_embedding(self):
        torch.manual_seed(1)
        for number, (mode, padding) in enumerate([(None, None), (None, 3), ("sum", None), ("mean", 3)]):
            rows = self.make(number=number, mode=mode, padding_idx=padding)
            local = local_of(rows, mode, padding)
            optimizer = torch.optim.SGD(local.parameters(), 0.5)
            for kind in (torch.int64, torch.int32, torch.int64):
                ids = torch.randint(50, (7, 6)).to(kind)
                ids[0, :3] = 3
                weights = torch.randn(7, 6, 4) if mode is None else torch.randn(7, 4)
                torch.testing.assert_close(rows(ids), local(ids))
                for module in (rows, local):
                    (module(ids) * weights).sum().backward()
                result = rows.step()
                self.assertEqual(result.elements_delivered, len(set(ids.ravel().tolist()) - {padding}))
                optimizer.step()
                optimizer.zero_grad()
                torch.testing.assert_close(rows.export(), local.weight.detach())
                some = torch.tensor([9, 3, 9])
                torch.testing.assert_close(rows.export(some), local.weight.detach()[some])
            self.assertEqual(list(rows.parameters()), [])
            self.assertGreater(rows.export().abs().sum(), 1)

    def test_bags(self):
        rows = self.make(mode="sum", padding_idx=-1)
        local = local_of(rows, "sum", 49)
        ids, offsets = torch.tensor([4, 4, 49, 7, 1]), torch.tensor([0, 3, 3])
        weights = torch.rand(5, requires_grad=True)
        mine, theirs = (module(ids, offsets, weights) for module in (rows, local))
        torch.testing.assert_close(mine, theirs)
        self.assertEqual(mine[1].tolist(), [0, 0, 0, 0])
        (mine * torch.arange(4.0)).sum().backward()
        self.assertEqual(rows.step().elements_sent, 3)
        self.assertIsNotNone(weights.grad)
        with self.assertRaisesRegex(TypeError, 'for mode="sum" or "mean"'):
            self.make(number=1)(ids, offsets)

    def test_no_ids_and_only_padding(self):
        rows = self.make(padding_idx=0)
        for ids in (torch.zeros(0, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.int32)):
            got = rows(ids)
            self.assertEqual(tuple(got.shape), (*ids.shape, 4))
            got.sum().backward()
            self.assertIsNone(rows.step())
        got = rows(torch.zeros(3, dtype=torch.int64))
        self.assertEqual(got.tolist(), [[0] * 4] * 3)
        got.sum().backward()
        self.assertIsNone(rows.step())
        self.assertEqual(rows.table.clocks_ended, 3)
        bags = self.make(number=1, mode="mean")
        got = bags(torch.zeros(0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
        self.assertEqual(got.tolist(), [[0] * 4] * 2)
        self.assertEqual(tuple(self.make(number=2).export(torch.zeros(0, dtype=torch.int64)).shape), (0, 4))

    def test_what_is_refused(self):
        rows = self.make()
        for ids, kind, words in [
            (torch.tensor([1, 50]), IndexError, "id 50 is out of range; this Embedding has 50 rows"),
            (torch.tensor([-1]), IndexError, "id -1 is out of range"),
            (torch.tensor([2.0]), TypeError, "ids are torch.float32; .* torch.int64 or torch.int32"),
            (torch.tensor([True]), TypeError, "ids are torch.bool"),
            ([1, 2], TypeError, "ids are list"),
        ]:
            with self.assertRaisesRegex(kind, words):
                rows(ids)
            with self.assertRaisesRegex(kind, words):
                rows.prefetch(ids)
        for call, kind, words in [
            (lambda: self.make(dtype=torch.float64), TypeError, "dtype is torch.float64"),
            (lambda: self.make(rows=0), ValueError, "num_embeddings is 0"),
            (lambda: self.make(dim=1.5), TypeError, "integer"),
            (lambda: self.make(mode="max"), ValueError, "mode is 'max'"),
            (lambda: self.make(padding_idx=50), ValueError, "padding_idx is 50"),
            (lambda: self.make(number=1, rate=1), TypeError, "rate is not known"),
            (lambda: self.make(number=rows.table), TypeError, "is already open; learning_rate"),
            (lambda: Embedding(self.ps, rows.table, 50, 8), ValueError, "sparse, of dim 8"),
            (lambda: self.make(number=0), weft.ExistsError, "already open"),
            (lambda: rows.half(), TypeError, "cannot be made torch.float16"),
            (lambda: nn.Sequential(rows).double(), TypeError, "cannot be made torch.float64"),
            (lambda: rows.load_state_dict({"weight": torch.zeros(50, 4)}), RuntimeError, "--restore"),
            (lambda: copy.deepcopy(rows), TypeError, "cannot be copied .*export"),
            (lambda: copy.copy(rows), TypeError, "cannot be copied"),
            (lambda: pickle.dumps(rows), TypeError, "cannot be copied or pickled"),
            (lambda: torch.save(nn.Sequential(rows), io.BytesIO()), TypeError, "pickled"),
        ]:
            with self.assertRaisesRegex(kind, words):
                call()
        self.assertIs(rows.float(), rows)
        self.assertIn("50, 4, table='table 0'", repr(rows))

    def test_state_dict_names_the_table(self):
        model = nn.Sequential(self.make(), nn.Linear(4, 1))
        saved = io.BytesIO()
        torch.save(model.state_dict(), saved)
        state = torch.load(io.BytesIO(saved.getvalue()))
        self.assertIn("rows of weft.torch.Embedding are at the parameter server", str(state["0._extra_state"]))
        self.assertEqual(sorted(state), ["0._extra_state", "1.bias", "1.weight"])
        model.load_state_dict(state)
        other = nn.Sequential(self.make(number=1), nn.Linear(4, 1))
        with self.assertRaisesRegex(ValueError, "with table 0, this one has 1"):
            other.load_state_dict(state)

    def test_what_leaves_nothing_behind(self):
        rows = self.make()
        before = rows.export()
        with torch.no_grad():
            self.assertFalse(rows(torch.tensor([1])).requires_grad)
        rows(torch.tensor([1, 2]))  # no backward
        self.assertIsNone(rows.step())
        try:
            out = rows(torch.tensor([1, 2]))
            raise KeyError("between forward and backward")
        except KeyError:
            del out
        rows(torch.tensor([1])).sum().backward()
        rows.zero_grad()
        self.assertIsNone(rows.step())
        torch.testing.assert_close(rows.export(), before, rtol=0, atol=0)
        rows.eval()
        rows(torch.tensor([1])).sum().backward()  # as nn.Embedding: eval() does not imply no_grad()
        rows.step()
        torch.testing.assert_close(rows.export()[1], before[1] - 0.5)

    def test_gradients_add_up_until_step(self):
        for number, average in enumerate(("workers", "contributors")):
            rows = self.make(number=number, average=average)
            before = rows.export()
            shared = rows(torch.tensor([1, 2])).sum() + 2 * rows(torch.tensor([2, 2, 3])).sum()
            shared.backward(retain_graph=True)
            shared.backward()
            rows(torch.tensor([5])).sum().backward()
            self.assertEqual(rows.step(scale=2.0).elements_sent, 4)
            want = before.clone()
            for row, gradient in ((1, 1), (2, 5), (3, 2), (5, 0.5)):
                want[row] -= 0.5 * gradient
            torch.testing.assert_close(rows.export(), want)

    def test_second_derivatives(self):
        rows = self.make()
        out = rows(torch.tensor([1, 2]))
        # A gradient penalty on the embedding's output needs only first derivatives by the rows.
        (gradient,) = torch.autograd.grad((out**3).sum(), out, create_graph=True)
        (gradient**2).sum().backward()
        self.assertEqual(rows.step().elements_sent, 2)
        weight = torch.ones(1, requires_grad=True)
        loss = ((rows(torch.tensor([1])) * weight) ** 2).sum()
        (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
        gradient.backward()
        self.assertEqual(rows.step().elements_sent, 1)

    def test_forgotten_steps_are_told(self):
        rows = self.make()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(70):
                rows(torch.tensor([1])).sum().backward()
        self.assertEqual(sum("without step()" in str(one.message) for one in told), 1)
        before = rows.export()
        rows.step()
        torch.testing.assert_close(rows.export()[1], before[1] - 35)

    def test_not_a_number(self):
        rows = self.make(name="clicks")
        before = rows.export()
        (rows(torch.tensor([1])) * float("nan")).sum().backward()
        with self.assertRaisesRegex(weft.DataError, "clicks.*not a number"):
            rows.step()
        self.assertEqual(rows.table.clocks_ended, 0)
        rows(torch.tensor([1])).sum().backward()
        rows.step()
        torch.testing.assert_close(rows.export()[1], before[1] - 0.5)
        dropped = self.make(number=2, not_finite="drop")
        (dropped(torch.tensor([1])) * float("inf")).sum().backward()
        dropped.step()
        self.assertTrue(dropped.export().isfinite().all())

    def test_prefetch(self):
        rows = self.make()
        a, b = torch.tensor([[1, 2], [2, 9]]), torch.tensor([3])
        rows.prefetch(a)
        rows.prefetch(b)
        want = rows.export()
        torch.testing.assert_close(rows(a), want[a])
        torch.testing.assert_close(rows(a), want[a])  # a repeated batch is pulled again
        self.assertEqual((rows.prefetched, rows.pulled), (1, 1))
        rows(b).sum().backward()
        rows.prefetch(b)
        rows.step()
        # rows pulled before the step are not used
        torch.testing.assert_close(rows(b), want[b] - 0.5)
        self.assertEqual((rows.prefetched, rows.pulled), (2, 2))
        for _ in range(4):
            rows.prefetch(a)
        with self.assertRaisesRegex(RuntimeError, "4 batches are already prefetched"):
            rows.prefetch(a)
        rows.forget()
        rows.prefetch(a)
        self.assertEqual(tuple(rows(a).shape), (2, 2, 4))
        loose = self.make(number=1, consistency="asp")
        loose.prefetch(b)
        before = loose.export()
        loose(b).sum().backward()
        loose.prefetch(b)
        loose.step()
        loose(b)
        self.assertEqual((loose.prefetched, loose.pulled), (2, 0))
        torch.testing.assert_close(loose.export()[3], before[3] - 0.5)

    def test_more_rows_than_one_operation_takes(self):
        rows = self.make(rows=5000)
        ids = torch.arange(5000).flip(0)
        before = rows.export()
        rows.prefetch(ids)
        rows(ids).sum().backward()
        self.assertEqual(rows.step().elements_delivered, 5000)
        torch.testing.assert_close(rows.export(), before - 0.5)

    def test_lost_rows_read_as_before(self):
        servers = Servers(shards=1, workers=1, arguments=["--inject-loss", "0.2"])
        self.addCleanup(servers.__exit__)
        with servers.connect(inject_loss_ppm=200000) as ps:
            rows = Embedding(ps, 0, 20000, 4, bound=0.4, feedback_rows=20000, learning_rate=1.0)
            ids = torch.arange(20000)
            before = rows.export()
            torch.testing.assert_close(rows(ids), before)
            rows(ids).sum().backward()
            result = rows.step()
            self.assertGreater(result.rows_missed, 0)
            there = rows.export()
            kept_ids, kept = rows.table.residuals()
            there[torch.from_numpy(kept_ids.astype(np.int64))] -= torch.from_numpy(kept)
            torch.testing.assert_close(there, before - 1)

    def test_lost_clocks_go_again_without_a_call(self):
        """With thread=1 a lost CLOCK is sent again although this process calls no function of weft."""
        servers = Servers(shards=2, workers=2, arguments=["--inject-loss", "0.2"])
        self.addCleanup(servers.__exit__)
        a, b = (
            servers.connect(worker=i, workers=2, thread=1, inject_loss_ppm=200000) for i in range(2)
        )
        modules = [Embedding(ps, 0, 100, 4, learning_rate=1.0) for ps in (a, b)]
        ids = torch.tensor([1, 2])
        before = modules[1].export(ids)
        for _ in range(50):
            for rows in modules:
                rows(ids).sum().backward()
                rows.step()
            got = modules[1](ids)
        torch.testing.assert_close(got.detach(), before - 50)
        for ps in (a, b):
            ps.abort()

    def test_closed_and_forked(self):
        rows = self.make()
        child = os.fork()
        if child == 0:
            try:
                rows(torch.tensor([1]))
            except RuntimeError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.ps.close()
        with self.assertRaisesRegex(weft.InvalidError, "closed"):
            rows(torch.tensor([1]))


# ---- ranks ----


class Net(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows
        self.top = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, ids):
        return self.top(self.rows(ids).flatten(1)).squeeze(1)


def batches(steps):
    torch.manual_seed(5)
    for _ in range(steps):
        ids = torch.randint(20, (64, 3))
        yield ids, (ids.remainder(2).sum(1) > 1).float()


STEPS = 60
TABLE = {
    "sgd": {"learning_rate": 1.0},
    "adagrad": {"learning_rate": 0.1, "accumulator": 1e-4},
}


def optimizer_of(name, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, 1.0)
    return torch.optim.Adagrad(parameters, 0.1, initial_accumulator_value=1e-4, eps=1e-10)


def train_over_servers(rank, ranks, servers, key, name, consistency):
    torch.manual_seed(2)
    with weft.connect(servers, key_file=key, worker=rank, workers=ranks, thread=1) as ps:
        rows = Embedding(ps, 0, 20, 4, optimizer=name, consistency=consistency, **TABLE[name])
        begin = rows.export()
        model = DistributedDataParallel(Net(rows))
        optimizer = optimizer_of(name, model.parameters())
        losses = []
        parts = [(ids[rank::ranks], y[rank::ranks]) for ids, y in batches(STEPS)]
        for step, (ids, labels) in enumerate(parts):
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids), labels)
            loss.backward()
            rows.step()
            if step + 1 < STEPS:
                rows.prefetch(parts[step + 1][0])
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return begin, rows.export(), model.module.top.state_dict(), losses, rows.prefetched


def train_alone(begin, name):
    torch.manual_seed(2)
    model = Net(nn.Embedding.from_pretrained(begin, freeze=False))
    optimizer = optimizer_of(name, model.parameters())
    losses = []
    for ids, labels in batches(STEPS):
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


class BesideDDP(unittest.TestCase):
    def test_bsp_is_what_one_process_gives(self):
        for name in ("sgd", "adagrad"):
            with Servers(shards=2, workers=2) as servers:
                a, b = job(train_over_servers, servers.list, servers.key, name, "bsp", ranks=2)
            model, losses = train_alone(a[0], name)
            self.assertTrue(torch.equal(a[1], b[1]))
            torch.testing.assert_close(a[1], model.rows.weight.detach(), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(a[2], model.top.state_dict(), rtol=1e-4, atol=1e-5)
            mean = (torch.tensor(a[3]) + torch.tensor(b[3])) / 2
            torch.testing.assert_close(mean, torch.tensor(losses), rtol=1e-4, atol=1e-5)
            self.assertEqual(a[4], STEPS - 1)
            self.assertLess(sum(losses[-10:]), 0.5 * sum(losses[:10]))

    def test_it_learns_with_staleness(self):
        for consistency in ("ssp:2", "asp"):
            with Servers(shards=2, workers=2) as servers:
                a, b = job(train_over_servers, servers.list, servers.key, "adagrad", consistency, ranks=2)
            for _, _, _, losses, _ in (a, b):
                self.assertLess(sum(losses[-10:]), 0.5 * sum(losses[:10]))


if __name__ == "__main__":
    sys.exit(tap.main())
