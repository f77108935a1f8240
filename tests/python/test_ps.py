"""The Python package against real servers. Prints TAP; run by tests/cli/python.sh."""

import gc
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import numpy as np
import tap

import weft
import weft.fabric
from weft import checkpoint

WEFT = os.environ["WEFT_BIN"]


class Servers:
    """`weft server`, with a new job key unless `key` names a file."""

    def __init__(self, shards=2, workers=2, arguments=(), full_disk=False, key=None):
        self.folder = tempfile.TemporaryDirectory()
        self.key = key or os.path.join(self.folder.name, "job.key")
        if key is None:
            subprocess.run([WEFT, "keygen", self.key], check=True, capture_output=True)
        command = [WEFT, "server", "--key-file", self.key, "--port", "0"]
        command += ["--shards-per-server", str(shards), "--workers", str(workers), *arguments]
        # A limit of 4 KB on the size of files emulates a full disk.
        limit = ["sh", "-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"]
        command = limit + command if full_disk else command
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = [self.process.stdout.readline() for _ in range(shards)]
        self.list = ",".join(line.split(": ")[1].strip() for line in lines)

    def connect(self, **config):
        config.setdefault("worker", 0)
        config.setdefault("workers", 1)
        return weft.connect(self.list, key_file=self.key, **config)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()


def push_whole_numbers(table, ids):
    """Pushes five times, whole numbers that float32 adds exactly; returns the sum of the pushes."""
    random, pushed = np.random.default_rng(1), np.zeros((len(ids), 4))
    for _ in range(5):
        rows = random.integers(-9000, 9000, pushed.shape).astype(np.float32)
        table.push(ids, rows)
        pushed += rows
    return pushed


def ids_of(n):
    return np.arange(n, dtype=np.uint64) * 7919


class Scheduler:
    """`weft scheduler` for servers that are started with its address; the key of both is in `key`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.key = os.path.join(self.folder.name, "job.key")
        subprocess.run([WEFT, "keygen", self.key], check=True, capture_output=True)
        self.process = subprocess.Popen(
            [WEFT, "scheduler", "--key-file", self.key, "--port", "0"], stdout=subprocess.PIPE, text=True
        )
        self.address = self.process.stdout.readline().split(": ")[1].strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.folder.cleanup()


class PushAndPull(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.servers = Servers()
        cls.ps = cls.servers.connect(rows_max=1000)
        cls.table = cls.ps.table(0, dim=4, learning_rate=-1.0, consistency="asp", name="sums")

    @classmethod
    def tearDownClass(cls):
        cls.ps.close()
        cls.servers.__exit__()

    def test_pushes_add_and_pulls_read(self):
        ids = ids_of(300) + 10**6
        rows = np.arange(1200, dtype=np.float32).reshape(300, 4)
        result = self.table.push(ids, rows)
        self.assertEqual(result.elements_delivered, 300)
        self.assertEqual(result.requests, 2)
        self.assertGreater(result.latency.n_tx_ns, 0)
        self.table.push(ids, rows)
        got = self.table.pull(ids)
        np.testing.assert_array_equal(got, 2 * rows)
        self.assertEqual(self.table.last_result.rows_missed, 0)

    def test_long_lists_go_in_parts(self):
        ids = ids_of(2500) + 2 * 10**6
        rows = np.ones((2500, 4), dtype=np.float32)
        self.assertEqual(self.table.push(ids, rows).elements_delivered, 2500)
        self.assertEqual(self.table.pull(ids).sum(), 10000)
        with self.assertRaisesRegex(weft.InvalidError, "rows_max"):
            self.table.push_async(ids, rows)

    def test_empty_lists_are_allowed(self):
        empty = np.array([], dtype=np.uint64)
        self.assertEqual(self.table.pull(empty).shape, (0, 4))
        self.table.push(empty, np.zeros((0, 4), dtype=np.float32))

    def test_ctrl_c_when_a_push_has_begun_loses_nothing(self):
        ids, rows = ids_of(5) + 77 * 10**6, np.ones((5, 4), dtype=np.float32)
        call = self.ps._call

        def interrupted(*arguments, **how):
            call(*arguments, **how)
            raise KeyboardInterrupt

        self.ps._call = interrupted
        with self.assertRaises(KeyboardInterrupt):
            self.table.push_async(ids, rows)
        del self.ps._call
        self.assertTrue(any(piece.rows is rows for pieces in self.ps._lent.values() for piece in pieces))
        self.ps.flush()
        np.testing.assert_array_equal(self.table.pull(ids), rows)
        self.assertEqual(self.ps._lent, {})

    def test_ctrl_c_at_any_line_of_a_push_loses_nothing(self):
        ids, rows = ids_of(5) + 78 * 10**6, np.ones((5, 4), dtype=np.float32)
        begin = type(self.ps)._begin_lists, weft.ps.Op.__init__
        for lines in range(1, 1000):
            if not tap.interrupted(lines, begin, tap.ctrl_c, lambda: self.table.push_async(ids, rows).wait()):
                break
            self.ps.flush()
            self.table.push(ids, rows)
            self.assertEqual(self.ps._lent, {}, f"line {lines}")
        self.assertGreater(lines, 10)

    def test_arrays_are_used_without_a_copy(self):
        ids = ids_of(10) + 3 * 10**6
        self.table.push(ids, np.ones((10, 4), dtype=np.float32))
        out = np.full((10, 4), -1, dtype=np.float32)
        self.assertIs(self.table.pull(ids, out=out), out)
        self.assertTrue((out == 1).all())
        whole = np.zeros((20, 4), dtype=np.float32)
        self.table.pull(ids.astype(np.int64), out=whole[5:15])  # a view; int64 ids
        self.assertEqual(whole.sum(), 40)

    def test_errors_of_wrong_arrays_name_the_remedy(self):
        ids, rows = ids_of(3), np.zeros((3, 4), dtype=np.float32)
        wrong = [
            ([1, 2, 3], rows, "ids is a list; make it np.asarray"),
            (ids.astype(np.float64), rows, "ids is of float64; make it ids.astype"),
            (ids.reshape(3, 1), rows, "ids has shape"),
            (ids_of(6)[::2], rows, "not contiguous"),
            (ids, rows.tolist(), "rows is a list"),
            (ids, rows.astype(np.float64), r"rows is of float64; make it rows.astype\(np.float32\)"),
            (ids, np.zeros((3, 8), dtype=np.float32)[:, ::2], "rows is not contiguous"),
            (ids, np.zeros((3, 5), dtype=np.float32), r"3 ids and dim 4 require \(3, 4\)"),
            (ids, np.zeros(12, dtype=np.float32), "rows has shape"),
        ]
        for one, other, words in wrong:
            with self.assertRaisesRegex(TypeError, words):
                self.table.push(one, other)
        rows.flags.writeable = False
        with self.assertRaisesRegex(TypeError, "read-only"):
            self.table.pull(ids, out=rows)
        self.table.push(ids, rows)
        for bound in (-0.1, 1.0, float("nan")):
            with self.assertRaisesRegex(weft.InvalidError, "bound is"):
                self.table.push(ids, rows, bound=bound)

    def test_handles(self):
        ids, rows = ids_of(5) + 4 * 10**6, np.ones((5, 4), dtype=np.float32)
        push = self.table.push_async(ids, rows)
        pull = self.table.pull_async(ids)
        np.testing.assert_array_equal(pull.wait(timeout=120), rows)
        self.assertEqual(push.wait().elements_delivered, 5)
        self.assertEqual(push.wait(), push.result)  # waiting again is allowed
        late = self.table.pull_async(ids)
        while not late.done():
            self.ps.progress(0.01)
        self.assertTrue(late.done())

    def test_all_operation_slots_in_use(self):
        ids = ids_of(5)
        ops = [self.table.pull_async(ids) for _ in range(8)]
        with self.assertRaisesRegex(weft.AgainError, "ops_max"):
            self.table.pull_async(ids)
        for op in ops:
            op.wait()
        # Handles dropped without a wait: their slots are freed, and their arrays are kept until the
        # operations have ended.
        for _ in range(30):
            self.table.pull_async(ids)
        gc.collect()
        self.table.pull(ids)

    def test_two_threads_collect_what_was_dropped(self):
        while self.ps._reap_one(self.ps._dropped.ended):
            pass
        op = self.table.pull_async(ids_of(5))
        handle = op._handle
        del op
        gc.collect()
        asked, errors, test = [], [], self.ps._test

        def collect():
            try:
                self.ps._reap()
            except Exception as error:
                errors.append(error)

        def while_another_thread_collects(handle):
            asked.append(handle)
            if len(asked) == 1:
                other = threading.Thread(target=collect)
                other.start()
                other.join()
            return test(handle)

        self.ps._test = while_another_thread_collects
        try:
            collect()
        finally:
            del self.ps._test
        self.assertEqual((asked, errors), ([handle], []))

    def test_a_dropped_failure_is_raised_later(self):
        ids = ids_of(1)
        self.table.push_async(ids, np.full((1, 4), np.nan, dtype=np.float32))
        gc.collect()
        with self.assertRaisesRegex(weft.DataError, "not a number"):
            for _ in range(100):
                self.table.pull(ids)

    def test_refused(self):
        rows = np.full((1, 4), np.inf, dtype=np.float32)
        with self.assertRaisesRegex(weft.DataError, "push to sums: refused by shard") as caught:
            self.table.push(ids_of(1), rows)
        self.assertEqual(caught.exception.result.chunks_refused, 1)
        self.assertEqual(caught.exception.status, "WEFT_DATA")
        self.assertIsInstance(caught.exception, ValueError)

    def test_counters(self):
        counters = self.ps.counters()
        self.assertGreater(counters["datagrams_sent"], 0)
        self.assertNotIn("size", counters)

    def test_metrics(self):
        self.assertIsNone(self.ps.metrics)
        with self.servers.connect(worker=1, workers=2, metrics="0") as ps:
            self.assertRegex(ps.metrics, r"^http://127\.0\.0\.1:[0-9]+/metrics$")
            # No call is in progress, so the copy made at the connection is served.
            with urllib.request.urlopen(ps.metrics, timeout=120) as answer:
                text = answer.read().decode()
            self.assertIn("\nweft_worker_rank 1\n", text)
            self.assertIn("\nweft_snapshot_age_seconds ", text)
        with self.assertRaises(weft.InvalidError) as caught:
            self.servers.connect(worker=1, workers=2, metrics="here")
        self.assertIn("PORT or HOST:PORT", str(caught.exception))

    def test_several_threads_take_turns(self):
        ids, rows = ids_of(50) + 5 * 10**6, np.ones((50, 4), dtype=np.float32)
        threads = [
            threading.Thread(target=lambda: [self.table.push(ids, rows) for _ in range(20)])
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.table.pull(ids)[0, 0], 60)


class RangesAndLists(unittest.TestCase):
    """A vector of 1,030 floats in rows of 4, and a sparse table beside it."""

    @classmethod
    def setUpClass(cls):
        cls.servers = Servers()
        cls.ps = cls.servers.connect(rows_max=100)
        options = {"learning_rate": -1.0, "consistency": "asp"}
        cls.dense = cls.ps.table(0, dim=4, length=1030, name="layer", **options)
        cls.sparse = cls.ps.table(1, dim=2, name="clicks", **options)

    @classmethod
    def tearDownClass(cls):
        cls.ps.close()
        cls.servers.__exit__()

    def setUp(self):
        self.before = self.dense.pull_range()
        self.values = np.arange(1030, dtype=np.float32)

    def test_the_whole_vector(self):
        self.assertEqual(self.before.shape, (1030,))
        result = self.dense.push_range(self.values)
        self.assertEqual((result.elements_delivered, result.requests), (258, 6))
        np.testing.assert_array_equal(self.dense.pull_range(), self.before + self.values)
        self.assertEqual(self.dense.last_result.rows_missed, 0)

    def test_ranges(self):
        self.dense.push_range(self.values[:8].reshape(2, 4), first=3)
        self.dense.push_range_async(self.values[:2], first=257).wait()
        want = self.before.copy()
        want[12:20] += self.values[:8]
        want[1028:] += self.values[:2]
        out = np.zeros(400, dtype=np.float32)
        self.assertIs(self.dense.pull_range_async(out=out).wait(), out)
        np.testing.assert_array_equal(out, want[:400])
        np.testing.assert_array_equal(self.dense.pull_range(3, 2), want[12:20])
        np.testing.assert_array_equal(self.dense.pull_range(257, 1), want[1028:])
        self.assertEqual(self.dense.pull_range(258).shape, (0,))
        by_ids = self.dense.pull(np.array([3], dtype=np.uint64))
        np.testing.assert_array_equal(by_ids[0], want[12:16])

    def test_several_tables(self):
        ids, rows = ids_of(40) + 1, np.ones((40, 2), dtype=np.float32)
        pushed = self.ps.push([(self.sparse, ids, rows), (self.dense, 2, self.values[:8])])
        self.assertEqual(pushed.elements_delivered, 42)
        self.before[8:16] += self.values[:8]
        out = np.zeros((40, 2), dtype=np.float32)
        got = self.ps.pull([(self.dense, 250), (self.sparse, ids, out), (self.sparse, ids[:1])])
        self.assertEqual(self.ps.last_result.rows_missed, 0)
        np.testing.assert_array_equal(got[0], self.before[1000:])
        self.assertIs(got[1], out)
        self.assertTrue((out == 1).all() and (got[2] == 1).all())
        op = self.ps.pull_async([(self.dense, 0, np.zeros(8, dtype=np.float32))])
        np.testing.assert_array_equal(op.wait()[0], self.before[:8])
        self.assertEqual(self.ps.push([]).requests, 0)

    def test_what_does_not_fit(self):
        values, ids = self.values, ids_of(3)
        for call, kind, words in [
            (lambda: self.dense.push_range(values[:5]), TypeError, "whole rows of 4 floats"),
            (lambda: self.dense.push_range(values, first=1), TypeError, "reaches its end at 1030"),
            (lambda: self.dense.push_range(values[:4], first=-1), ValueError, "first is -1"),
            (lambda: self.dense.push_range(values[:8:2]), TypeError, "not contiguous"),
            (lambda: self.dense.push_range(None), TypeError, "values is a NoneType"),
            (lambda: self.dense.push_range(values[:4], "a"), TypeError, "first is a str"),
            (lambda: self.dense.pull_range(0, 2, values[:4]), TypeError, "2 rows there are 8"),
            (lambda: self.sparse.pull_range(), TypeError, "clicks.*is sparse"),
            (lambda: self.dense.pull([1, 2]), TypeError, "ids is a list"),
            (lambda: self.ps.pull([(self.sparse, [1])]), TypeError, "ids is a list"),
            (lambda: self.ps.pull([(self.sparse, 1)]), TypeError, "is sparse"),
            (lambda: self.ps.pull([("clicks", ids)]), TypeError, "weft.Table"),
            (lambda: self.ps.pull([(self.sparse, ids)] * 5), ValueError, "lists_max"),
            (
                lambda: self.ps.pull(
                    [(self.dense, 0)] * 64 + [(self.dense, 0, np.zeros(8, dtype=np.float32))]
                ),
                ValueError,
                "from number 63 on",
            ),
            (lambda: self.ps.pull([(self.dense, 0)] * 65), ValueError, "lists_max"),
            (lambda: self.ps.pull([(self.dense, 0)]), ValueError, "rows_max"),
        ]:
            with self.assertRaisesRegex(kind, words):
                call()


class TablesAndClocks(unittest.TestCase):
    def test_options(self):
        with Servers(shards=1, workers=1) as servers, servers.connect() as ps:
            with self.assertRaisesRegex(weft.InvalidError, '"newton" is not known'):
                ps.table(0, optimizer="newton")
            with self.assertRaisesRegex(weft.InvalidError, "consistency"):
                ps.table(0, consistency="sometimes")
            with self.assertRaisesRegex(TypeError, "rate is not known; there are .*learning_rate"):
                ps.table(0, rate=1)
            with self.assertRaisesRegex(weft.InvalidError, "dim is -1"):
                ps.table(0, dim=-1)
            with self.assertRaisesRegex(weft.InvalidError, 'average is "mode"; choose "workers"'):
                ps.table(0, average="mode")
            first = ps.table(1, dim=2, optimizer="adagrad", learning_rate=0.5)
            self.assertEqual(repr(first), "<weft.Table table 1, dim 2>")
            with self.assertRaisesRegex(weft.ExistsError, "already open"):
                ps.table(1, dim=2)
            with servers.connect() as again, self.assertRaisesRegex(weft.DataError, "other values"):
                again.table(1, dim=3)

    def test_what_sums_are_divided_by(self):
        """Two workers in step; row 1 gets a gradient from both, row 2 from one."""
        for average, both, one in (("workers", 3, 1.5), ("contributors", 3, 3), ("none", 6, 3)):
            with Servers(shards=2, workers=2) as servers:
                a, b = (servers.connect(worker=rank, workers=2) for rank in range(2))
                with a, b:
                    tables = [ps.table(0, learning_rate=-1.0, average=average) for ps in (a, b)]
                    tables[0].push(np.array([1, 2]), np.array([[1], [3]], dtype=np.float32))
                    tables[1].push(np.array([1]), np.array([[5]], dtype=np.float32))
                    for ps, table in zip((a, b), tables):
                        table.clock()
                        ps.flush(timeout=120)
                    got = tables[0].pull(np.array([1, 2]))
                    np.testing.assert_array_equal(got, [[both], [one]])

    def test_workers_in_step(self):
        with Servers(shards=2, workers=2) as servers:
            a = servers.connect(worker=0, workers=2)
            b = servers.connect(worker=1, workers=2)
            tables = [ps.table(0, dim=1, learning_rate=-1.0) for ps in (a, b)]
            ids = ids_of(3)
            for table, value in zip(tables, (1, 3)):
                table.push(ids, np.full(3, value, dtype=np.float32))
            tables[0].clock()
            waiting = tables[0].pull_async(ids)
            with self.assertRaisesRegex(weft.WaitTimeoutError, "slowest worker"):
                waiting.wait(timeout=0.2)
            self.assertFalse(waiting.done())
            tables[1].clock()
            b.flush(timeout=120)
            np.testing.assert_array_equal(waiting.wait(timeout=120).ravel(), [2, 2, 2])
            self.assertEqual(tables[0].clocks_ended, 1)
            a.close()
            b.close()

    def test_losses(self):
        with Servers(shards=1, workers=1, arguments=["--inject-loss", "0.1"]) as servers:
            with servers.connect(inject_loss_ppm=100000) as ps:
                table = ps.table(0, dim=4, learning_rate=-1.0, consistency="asp")
                ids = ids_of(20000)
                rows = np.ones((20000, 4), dtype=np.float32)
                self.assertEqual(table.push(ids, rows).elements_delivered, 20000)
                lossy = table.push(ids, rows, bound=0.4)
                self.assertLess(lossy.elements_delivered, lossy.elements_sent)
                out = np.full((20000, 4), -7, dtype=np.float32)
                table.pull(ids, out=out, bound=0.4)
                kept = int((out[:, 0] == -7).sum())
                self.assertGreater(kept, 0)
                self.assertEqual(table.last_result.rows_missed, kept)
                missed = table.last_result.missed
                np.testing.assert_array_equal(missed, np.flatnonzero(out[:, 0] == -7))

    def test_missing_rows_have_the_last_pulled_or_initial_values(self):
        arguments = ["--inject-loss", "0.2"]
        with Servers(shards=2, workers=1, arguments=arguments) as servers:
            with servers.connect(rows_max=7000, inject_loss_ppm=200000) as ps:
                options = {"learning_rate": -1.0, "consistency": "asp"}
                table = ps.table(0, dim=4, init_scale=0.5, init_seed=7, init_skip=1, **options)
                few = ps.table(1, dim=4, last_values_max=1000, **options)
                ids = ids_of(20000)
                rows = np.ones((20000, 4), dtype=np.float32)
                # No earlier pull: initial weights.
                first = table.pull(ids, bound=0.4)
                self.assertGreater(table.last_result.rows_missed, 0)
                np.testing.assert_array_equal(first, table.pull(ids))
                self.assertTrue((first[:, 0] == 0).all() and (first[:, 1:] != 0).all())
                # Afterwards: the values of the last pull.
                table.push(ids, rows)
                got = table.pull(ids, bound=0.4)
                want = first + 1
                missed = table.last_result.missed
                want[missed] = first[missed]
                np.testing.assert_array_equal(got, want)
                op = table.pull_async(ids[:7000], bound=0.4)
                got = op.wait()
                missed = op.result.missed
                self.assertGreater(len(missed), 0)
                want[:7000] = np.where(
                    np.isin(np.arange(7000), missed)[:, None], want[:7000], first[:7000] + 1
                )
                np.testing.assert_array_equal(got, want[:7000])
                table.pull(ids)
                # A pull of several tables: missing rows keep the values that `out` had before.
                out = np.full((3000, 4), 9, dtype=np.float32)
                got, kept = ps.pull([(table, ids[:3000]), (few, ids[:3000], out)], bound=0.4)
                missed = ps.last_result.missed
                self.assertGreater(len(missed), 0)
                np.testing.assert_array_equal(got, first[:3000] + 1)
                late = np.isin(np.arange(3000), missed - 3000)
                self.assertTrue((kept[late] == 9).all() and (kept[~late] == 0).all())
                # More rows than last_values_max: missing rows not stored have initial values.
                few.push(ids, rows)
                few.pull(ids)
                few.pull(ids[:100])
                got = few.pull(ids, bound=0.4)
                self.assertTrue(np.isin(got, (0, 1)).all())
                self.assertGreater(ps.counters()["last_values_evicted"], 0)
                dense = ps.table(2, dim=16, length=20008, init_scale=0.5, **options)
                first = dense.pull_range(bound=0.4)
                self.assertGreater(dense.last_result.rows_missed, 0)
                np.testing.assert_array_equal(first, dense.pull_range())

    def test_lost_gradients_are_pushed_later(self):
        with Servers(shards=2, workers=1, arguments=["--inject-loss", "0.2"]) as servers:
            with servers.connect(rows_max=7000) as ps:
                table = ps.table(
                    dim=4, learning_rate=-1.0, consistency="asp", feedback_rows=20000
                )
                ids, random = ids_of(20000), np.random.default_rng(1)
                pushed = np.zeros((20000, 4), dtype=np.float32)
                for _ in range(5):
                    rows = random.integers(1, 100, (20000, 4)).astype(np.float32)
                    result = table.push(ids, rows, bound=0.3)
                    self.assertGreater(result.rows_missed, 0)
                    pushed += rows
                kept_ids, kept = table.residuals()
                np.testing.assert_array_equal(np.sort(kept_ids), ids[result.missed])
                there = table.pull(ids)
                there[kept_ids // 7919] += kept
                np.testing.assert_array_equal(there, pushed)
                self.assertEqual(ps.counters()["feedback_dropped"], 0)
                table.push(kept_ids, np.zeros_like(kept))
                self.assertEqual(len(table.residuals()[0]), 0)
                np.testing.assert_array_equal(table.pull(ids), pushed)

    def test_rounding_errors_are_pushed_later(self):
        with Servers(shards=2, workers=1) as servers:
            with servers.connect(rows_max=7000) as ps:
                table = ps.table(
                    dim=4,
                    learning_rate=-1.0,
                    consistency="asp",
                    value_type="bf16",
                    pull_value_type="bf16",
                )
                ids = ids_of(2000)
                pushed = push_whole_numbers(table, ids)
                kept_ids, kept = table.residuals()
                self.assertGreater(len(kept_ids), 1900)
                self.assertLess(np.abs(kept).max(), 33)
                while len(kept_ids) > 0:  # zeros leave residuals with fewer bits each time
                    table.push(kept_ids, np.zeros_like(kept))
                    kept_ids, kept = table.residuals()
                there = table.pull(ids)
                self.assertTrue((there.view(np.uint32) & 0xFFFF == 0).all())
                self.assertTrue((np.abs(there - pushed) <= np.abs(pushed) / 256).all())
                self.assertGreater(ps.counters()["value_bytes_saved"], 6 * 2000 * 4 * 2)
                self.assertEqual(ps.counters()["residual_dropped"], 0)
                with self.assertRaisesRegex(weft.InvalidError, 'value_type is "half"'):
                    ps.table(1, value_type="half")

    def test_int8(self):
        with Servers(shards=2, workers=1) as servers:
            with servers.connect(rows_max=7000) as ps:
                table = ps.table(
                    0, dim=4, learning_rate=-1.0, consistency="asp", value_type="int8"
                )
                ids = ids_of(2000)
                pushed = push_whole_numbers(table, ids)
                kept_ids, kept = table.residuals()
                self.assertGreater(len(kept_ids), 1900)
                self.assertLess(np.abs(kept).max(), 37)  # half of a 127th of 9000
                there = table.pull(ids).astype(np.float64)
                self.assertGreater(np.abs(there - pushed).max(), 10)
                place = {int(id): i for i, id in enumerate(ids)}
                for id, row in zip(kept_ids, kept):
                    there[place[int(id)]] += row
                self.assertLess(np.abs(there - pushed).max(), 0.05)  # float32 sums
                self.assertGreater(ps.counters()["value_bytes_saved"], 5 * 2000 * 4 * 2.9)
                self.assertEqual(ps.counters()["residual_dropped"], 0)
                with self.assertRaisesRegex(weft.InvalidError, "int8 is for gradients alone"):
                    ps.table(1, pull_value_type="int8")

    def test_deadlines(self):
        arguments = ["--inject-loss", "0.2"]
        with Servers(shards=2, workers=2, arguments=arguments) as servers:
            ps = servers.connect(workers=2, inject_loss_ppm=200000)
            options = {"learning_rate": -2.0, "dim": 4}
            table = ps.table(0, consistency="asp", feedback_rows=20000, **options)
            late = ps.table(1, deadline_ns=50 * 10**6, init_scale=0.5, **options)
            ids, rows = ids_of(20000), np.ones((20000, 4), dtype=np.float32)
            pushed, missed = np.zeros((20000, 4), dtype=np.float32), 0
            for deadline in (1e-6, 1e-4, 1e-3, 3e-3, 1e-2, 60):
                missed += table.push(ids, rows, deadline=deadline).rows_missed
                pushed += rows
                kept_ids, kept = table.residuals()
                there = table.pull(ids)
                there[kept_ids // 7919] += kept
                np.testing.assert_array_equal(there, pushed)
            self.assertGreater(missed, 0)
            self.assertGreater(ps.counters()["deadlines_expired"], 0)
            whole = table.pull(ids)
            for deadline in (1e-6, 1e-4, 1e-3, 3e-3, 60):
                out = np.full((20000, 4), -7, dtype=np.float32)
                table.pull(ids, out=out, deadline=deadline)
                want = whole.copy()
                want[table.last_result.missed] = -7
                np.testing.assert_array_equal(out, want)
                np.testing.assert_array_equal(table.pull(ids, deadline=deadline), whole)
            # A pull that waits for another worker; the default deadline is the table's.
            late.clock()
            for _ in range(3):
                initial = late.pull(ids[:100])
                self.assertEqual(late.last_result.rows_missed, 100)
                self.assertTrue((initial != 0).all())
            with self.assertRaises(weft.WaitTimeoutError):
                late.pull_async(ids[:100], deadline=60).wait(timeout=0.2)
            with self.assertRaisesRegex(weft.InvalidError, "deadline is -1"):
                table.pull(ids, deadline=-1)
            ps.close()

    def test_lost_rows_are_named(self):
        with Servers(shards=2, workers=1, arguments=["--inject-loss", "0.2"]) as servers:
            with servers.connect(rows_max=7000, lists_max=2) as ps:
                tables = [
                    ps.table(i, dim=4, learning_rate=-1.0, consistency="asp") for i in range(2)
                ]
                ids = ids_of(20000)  # goes in three parts
                rows = np.ones((20000, 4), dtype=np.float32)
                result = tables[0].push(ids, rows, bound=0.3)
                sums = tables[0].pull(ids)
                self.assertGreater(result.rows_missed, 0)
                self.assertEqual(result.rows_missed, len(result.missed))
                np.testing.assert_array_equal(np.flatnonzero(sums[:, 0] == 0), result.missed)
                # Of several tables: rows are counted over all lists.
                result = ps.push([(table, ids[:3500], rows[:3500]) for table in tables], bound=0.3)
                sums = np.concatenate(
                    [tables[0].pull(ids[:3500]) - sums[:3500], tables[1].pull(ids[:3500])]
                )
                self.assertGreater(result.rows_missed, 0)
                np.testing.assert_array_equal(np.flatnonzero(sums[:, 0] == 0), result.missed)
                self.assertEqual(len(tables[0].push(ids, rows).missed), 0)


class Checkpoints(unittest.TestCase):
    """Full checkpoints and deltas contain all pushes; damage is reported."""

    def save(self, ps):
        """Request a checkpoint that contains all pushes, and wait until it is valid. No worker may
        end a clock meanwhile."""
        ps.flush(timeout=120)
        before = checkpoint.numbers(self.folder)
        asked = ps.checkpoint()
        with self.assertRaisesRegex(weft.ExistsError, "in progress"):
            ps.checkpoint()
        asked.wait(timeout=120)
        self.assertNotEqual(checkpoint.numbers(self.folder), before)
        return checkpoint.load(self.folder, verify=True)

    def test_on_request_while_clocks_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["--checkpoint", folder + "/ckpt", "--checkpoint-every", "3600s"]
            with Servers(shards=2, workers=1, arguments=arguments) as servers:
                with servers.connect(peer_timeout_ns=60 * 10**9) as ps:
                    table = ps.table(learning_rate=-1.0)
                    ids, row = ids_of(50), np.ones((50, 1), dtype=np.float32)
                    last = 0
                    for _ in range(3):
                        asked = ps.checkpoint()
                        while not asked.done():
                            table.push(ids, row)
                            table.clock()
                        saved = checkpoint.load(folder + "/ckpt", verify=True)
                        self.assertGreater(saved.number, last)
                        last = saved.number
                        self.assertEqual(
                            set(saved.tables[0].weights.ravel().tolist()), {saved.tables[0].clock}
                        )

    def test_a_request_that_fails_says_why(self):
        with Servers(shards=2, workers=1) as servers, servers.connect() as ps:
            with self.assertRaisesRegex(weft.InvalidError, "open one"):
                ps.checkpoint()
            ps.table(consistency="asp")
            with self.assertRaisesRegex(weft.DataError, "checkpoint: refused .* --checkpoint DIR"):
                ps.checkpoint().wait(timeout=120)
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["--checkpoint", folder + "/ckpt", "--checkpoint-every", "3600s"]
            with Servers(shards=1, workers=1, arguments=arguments, full_disk=True) as servers:
                with servers.connect(peer_timeout_ns=60 * 10**9) as ps:
                    table = ps.table(dim=4, consistency="asp", learning_rate=-1.0)
                    ids = ids_of(1000)
                    table.push(ids, np.ones((1000, 4), dtype=np.float32))
                    with self.assertRaisesRegex(weft.DataError, "disk full or failed"):
                        ps.checkpoint().wait(timeout=120)
                    self.assertEqual(table.pull(ids).sum(), 4000)  # the server continues
                    self.assertEqual(checkpoint.numbers(folder + "/ckpt"), [])

    def test_a_server_ends_while_a_request_waits(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["--checkpoint", folder + "/ckpt", "--checkpoint-every", "3600s"]
            with Servers(shards=2, workers=1, arguments=arguments) as servers:
                ps = servers.connect(peer_timeout_ns=60 * 10**9)
                table = ps.table(learning_rate=-1.0)
                table.push(ids_of(50), np.ones((50, 1), dtype=np.float32))
                asked = ps.checkpoint()  # in the middle of a clock, which nobody ends
                with self.assertRaises(weft.WaitTimeoutError):
                    asked.wait(timeout=1)
                servers.process.terminate()
                with self.assertRaises(weft.PeerError):
                    asked.wait(timeout=120)
                ps.close()
                self.assertEqual(servers.process.wait(timeout=120), 0)

    def test_what_was_pushed_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = os.path.join(folder, "ckpt")
            arguments = ["--checkpoint", self.folder, "--checkpoint-every", "3600s"]
            arguments += ["--checkpoint-full-every", "3", "--checkpoint-keep", "9"]
            with Servers(shards=2, workers=1, arguments=arguments) as servers:
                with servers.connect(peer_timeout_ns=60 * 10**9) as ps:
                    self.check(servers, ps)
            self.damage()

    def check(self, servers, ps):
        options = {"learning_rate": -1.0, "consistency": "asp"}
        sparse = ps.table(0, dim=4, **options)
        dense = ps.table(1, dim=8, length=100, optimizer="adagrad", consistency="bsp")
        ids = np.sort(ids_of(500) ^ np.uint64(2**63))
        rows = np.arange(2000, dtype=np.float32).reshape(500, 4)
        sparse.push(ids, rows)
        dense.push_range(np.ones(100, dtype=np.float32))
        dense.clock()
        want = dense.pull_range()
        saved = self.save(ps)
        table = saved.tables[0]
        self.assertEqual((saved.shards, sorted(saved.tables)), (2, [0, 1]))
        np.testing.assert_array_equal(table.ids, ids)
        np.testing.assert_array_equal(table.weights, rows)
        self.assertEqual((table.state.shape, set(table.count.tolist())), ((500, 0), {1}))
        with self.assertRaisesRegex(TypeError, "sparse"):
            table.vector
        np.testing.assert_array_equal(saved.tables[1].vector, want)
        self.assertGreaterEqual(saved.tables[1].clock, 1)
        self.assertEqual(saved.tables[1].clock, saved.tables[1].worker_clocks[0])
        self.assertIn("adagrad", saved.tables[1].about)
        # Deltas: some rows changed, others are new.
        new = np.array([1, 2, 3], dtype=np.uint64)
        for _ in range(2):
            sparse.push(np.concatenate((ids[:10], new)), np.ones((13, 4), dtype=np.float32))
            saved = self.save(ps)
        table = saved.tables[0]
        np.testing.assert_array_equal(table.ids, np.concatenate((new, ids)))
        np.testing.assert_array_equal(table.weights[:3], np.full((3, 4), 2))
        np.testing.assert_array_equal(table.weights[3:13], rows[:10] + 2)
        np.testing.assert_array_equal(table.weights[13:], rows[10:])
        np.testing.assert_array_equal(saved.tables[1].vector, want)
        first = checkpoint.load(self.folder, checkpoint.numbers(self.folder)[0], verify=False)
        np.testing.assert_array_equal(first.tables[0].weights, rows)

    def test_removed_rows_stay_away(self):
        """More rows are removed than a delta lists: it replaces the table of its base."""
        with tempfile.TemporaryDirectory() as folder:
            self.folder = os.path.join(folder, "ckpt")
            arguments = ["--checkpoint", self.folder, "--checkpoint-every", "3600s"]
            arguments += ["--checkpoint-full-every", "9", "--checkpoint-keep", "9"]
            options = {"dim": 1, "learning_rate": -1.0, "consistency": "asp", "eviction": "lru",
                       "rows_max": 5000}
            ids, row = np.arange(1, 100001, dtype=np.uint64), np.ones((200, 1), dtype=np.float32)
            with Servers(shards=1, workers=1, arguments=arguments) as servers:
                with servers.connect(peer_timeout_ns=60 * 10**9) as ps:
                    table = ps.table(**options)
                    table.push(ids[:200], row)
                    self.save(ps)
                    for begin in range(200, len(ids), 200):
                        table.push(ids[begin : begin + 200], row)
                    saved = self.save(ps).tables[0]
                    self.assertEqual(len(saved.ids), 5000)
                    there = np.isin(ids, saved.ids)
                    np.testing.assert_array_equal(table.pull(ids).ravel(), there)
                servers.process.terminate()
                servers.process.wait(timeout=120)
            log = sorted(glob.glob(self.folder + "/log/0*"))
            with open(log[3]) as file:
                record = json.load(file)
            self.assertEqual((record["version"], record["base"]), (3, record["number"] - 1))
            self.assertEqual(record["clock"], 0)
            with Servers(shards=1, workers=1, arguments=[*arguments, "--restore"]) as servers:
                with servers.connect(peer_timeout_ns=60 * 10**9) as ps:
                    np.testing.assert_array_equal(ps.table(**options).pull(ids).ravel(), there)

    def admission_keys(self, table):
        """The admission keys of this table, one for each shard of the newest checkpoint."""
        keys, newest = [], checkpoint.numbers(self.folder)[-1]
        for path in sorted(glob.glob(f"{self.folder}/{newest:012d}-*.safetensors")):
            with open(path, "rb") as file:
                head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            keys.append(head["__metadata__"][f"table.{table}.admission_key"])
            self.assertRegex(keys[-1], "^[0-9a-f]{64}$")
        return keys

    def test_admission_counts_are_restored(self):
        """An id that needs three pushes, and got two before a restart, needs one more after it."""
        with tempfile.TemporaryDirectory() as folder:
            self.folder = os.path.join(folder, "ckpt")
            arguments = ["--checkpoint", self.folder, "--checkpoint-every", "3600s"]
            ids, rows = ids_of(200), np.ones((200, 4), dtype=np.float32)
            kinds = enumerate(("counter", "bloom"))
            tables = [{"number": number, "dim": 4, "learning_rate": -1.0, "consistency": "asp",
                       "admission": kind, "admission_count": 3, "admission_cells": 4000}
                      for number, kind in kinds]
            with Servers(shards=2, workers=1, arguments=arguments) as servers:
                with servers.connect(peer_timeout_ns=60 * 10**9) as ps:
                    for options in tables:
                        table = ps.table(**options)
                        table.push(ids, rows)
                        table.push(ids[:100], rows[:100])
                servers.process.terminate()
                servers.process.wait(timeout=120)  # it writes a last checkpoint
            counters, filters = self.admission_keys(0), self.admission_keys(1)
            self.assertEqual((len(counters), len(filters)), (2, 2))
            self.assertNotEqual(counters[0], counters[1])  # random per process
            self.assertEqual(filters[0], filters[1])  # common to the job
            for shards in (2, 3):
                again = [*arguments, "--restore"]
                with Servers(shards=shards, workers=1, arguments=again) as servers:
                    with servers.connect(peer_timeout_ns=60 * 10**9) as ps:
                        for options in tables:
                            table = ps.table(**options)
                            self.assertEqual(table.pull(ids).sum(), 0)
                            table.push(ids, rows)
                            np.testing.assert_array_equal(table.pull(ids[:100]), rows[:100])
                            self.assertLess(table.pull(ids[100:]).sum(), 4 * 10)

    def damage(self):
        newest = checkpoint.numbers(self.folder)[-1]
        files = sorted(name for name in os.listdir(self.folder) if name.startswith(f"{newest:012d}"))
        self.assertEqual(len(files), 2)
        records = sorted(name for name in os.listdir(os.path.join(self.folder, "log"))
                         if os.path.getsize(os.path.join(self.folder, "log", name)) > 0)
        files.insert(0, os.path.join("log", records[-1]))
        for name in files:
            path = os.path.join(self.folder, name)
            with open(path, "r+b") as file:
                data = file.read()
                at = len(data) - 9 if name.endswith("safetensors") else data.index(b"bytes") + 8
                for changed in (bytes([data[at] ^ 1]), data[at : at + 1]):
                    file.seek(at)
                    file.write(changed)
                    file.flush()
                    if changed != data[at : at + 1]:
                        with self.assertRaisesRegex(checkpoint.DamagedError, name.split(".")[0]):
                            checkpoint.load(self.folder, newest, verify=True)
            checkpoint.load(self.folder)
        os.truncate(os.path.join(self.folder, files[-1]), 100)
        with self.assertRaisesRegex(checkpoint.DamagedError, "bytes, not"):
            checkpoint.load(self.folder)
        with self.assertRaises(FileNotFoundError):
            checkpoint.load(os.path.dirname(self.folder))
        with self.assertRaisesRegex(FileNotFoundError, "no checkpoint 999"):
            checkpoint.load(self.folder, 999)


class Updates(unittest.TestCase):
    """A job with a transfer scheduler and a delay bound: one worker is left behind by the other."""

    def test_a_late_update_is_dropped(self):
        with Scheduler() as scheduler:
            bound = ["--scheduler", scheduler.address, "--tau-max", "2"]
            with Servers(shards=1, arguments=bound, key=scheduler.key) as servers:
                config = {"scheduler": scheduler.address, "consistency": "asp", "tau_max": 2}
                config.update(workers=2, update_bytes_min=1000)
                with servers.connect(worker=0, **config) as fast, servers.connect(worker=1, **config) as slow:
                    self.leave_behind(fast, slow)

    def leave_behind(self, fast, slow):
        options = {"dim": 4, "learning_rate": -1.0, "consistency": "asp"}
        tables = [ps.table(0, **options) for ps in (fast, slow)]
        ids, ones = ids_of(500), np.ones((500, 4), np.float32)
        for table in tables:
            self.assertEqual(table.pull(ids).sum(), 0)
        for _ in range(3):
            tables[0].pull(ids)
            result = self.update(fast, tables[0], ids, 2 * ones)
            self.assertFalse(result.dropped)
        result = self.update(slow, tables[1], ids, ones, norm=44.7)
        self.assertTrue(result.dropped)
        self.assertEqual(result.requests_dropped, result.requests)
        np.testing.assert_array_equal(result.missed, np.arange(500))
        np.testing.assert_array_equal(tables[1].pull(ids), 3 * ones)
        self.assertFalse(self.update(slow, tables[1], ids, 2 * ones).dropped)
        np.testing.assert_array_equal(weft.fabric.get(fast, [(tables[0], ids)]), [4 * ones])
        counters = slow.counters()
        self.assertEqual(counters["updates"], 2)
        self.assertEqual(counters["updates_dropped"] + counters["pushes_late"], 1)
        with self.assertRaisesRegex(weft.InvalidError, "norm is -1"):
            slow.push([(tables[1], ids, ones)], norm=-1)

    def update(self, ps, table, ids, rows, **how):
        clocks = table.clocks_ended
        result = weft.fabric.push(ps, [(table, ids, rows)], **how)
        self.assertEqual(table.clocks_ended, clocks + 1)
        return result


class Connections(unittest.TestCase):
    def test_configuration(self):
        for config, kind, words in [
            ({"servers": "nowhere"}, weft.InvalidError, "host:port"),
            ({"security": "maybe"}, weft.InvalidError, "auth, seal, none"),
            ({"key": b"short"}, TypeError, "32 bytes"),
            ({"colour": 1}, TypeError, "colour is not known"),
            ({"workers": 2**33}, weft.InvalidError, "workers is"),
            ({"timeout": -1}, weft.InvalidError, "seconds"),
            ({"worker": 3, "workers": 3}, ValueError, "ranks go from 0"),
            ({"key_file": "/none.key"}, LookupError, "weft keygen"),
            ({"coordinator": "nowhere"}, weft.InvalidError, "coordinator is .nowhere"),
        ]:
            with self.assertRaisesRegex(kind, words):
                weft.connect(**{"servers": "127.0.0.1:9", "worker": 0, "workers": 1, **config})
        with self.assertRaisesRegex(weft.NotFoundError, "WEFT_SERVERS"):
            weft.connect(security="none")

    def test_nobody(self):
        with self.assertRaisesRegex(TimeoutError, "start `weft server` there"):
            weft.connect("127.0.0.1:9", security="none", timeout=0.3, worker=0, workers=1)
        with self.assertRaisesRegex(TimeoutError, "no answer from the coordinator"):
            weft.connect(coordinator="127.0.0.1:9", security="none", timeout=0.3)

    def test_another_key(self):
        """Where the server does not get to reply in time the error is another one."""
        with Servers(shards=1) as servers:
            for seconds in (1, 8, 64):
                with self.assertRaises(weft.PeerError) as caught:
                    weft.connect(servers.list, key=b"k" * 32, worker=0, workers=1,
                                 peer_timeout_ns=seconds * 10**9)
                if "another job key" in str(caught.exception):
                    break
            self.assertIn("reports another job key", str(caught.exception))

    def test_a_killed_server(self):
        with Servers(shards=1, workers=2) as servers:
            ps = servers.connect(workers=2, peer_timeout_ns=6 * 10**9, keepalive_ns=10**9)
            table = ps.table(0)
            table.clock()
            waiting = table.pull_async(ids_of(3))
            servers.process.kill()
            with self.assertRaisesRegex(ConnectionError, "shard 0 at 127.0.0.1:.* is gone"):
                waiting.wait()
            with self.assertRaises(weft.PeerError):
                table.pull(ids_of(3))
            ps.close()
            ps.close()
            for call in (table.clock, ps.flush, ps.idle, lambda: table.pull(ids_of(1))):
                with self.assertRaisesRegex(weft.InvalidError, "closed"):
                    call()

    def test_control_c_ends_a_wait(self):
        with Servers(shards=1, workers=2) as servers:
            ps = servers.connect(workers=2)
            table = ps.table(0)
            table.clock()
            with self.assertRaises(KeyboardInterrupt):
                threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                table.pull(ids_of(3))  # waits for a worker that never comes
            ps.close()

    def test_control_c_while_a_server_is_disconnected(self):
        """While a worker waits to reconnect, Ctrl-C interrupts every call."""
        with Servers(shards=1, workers=1) as servers:
            ps = servers.connect(
                peer_timeout_ns=10**9, keepalive_ns=2 * 10**8, reconnect_timeout_ns=10**12
            )
            table = ps.table(consistency="asp", learning_rate=-1.0)
            ids, row = ids_of(3), np.ones((3, 1), dtype=np.float32)
            waiting = table.push_async(ids, row)
            servers.process.kill()
            while ps.counters()["server_disconnects"] == 0:
                ps.progress(0.1)
                if waiting.done():
                    waiting = table.pull_async(ids)  # detection needs an outstanding reply
            table.clock()
            for call in (
                lambda: table.push(ids, row),
                lambda: table.pull(ids),
                table.clock,
                ps.flush,
                lambda: ps.table(1),
                waiting.wait,
            ):
                with self.assertRaises(KeyboardInterrupt):
                    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                    call()
            ps.close()


if __name__ == "__main__":
    sys.exit(tap.main())
