"""weft.coll: ranks in threads of one process, over loopback. Prints TAP; run by tests/cli/python.sh."""

import collections
import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
import unittest
import warnings
from unittest import mock

import numpy as np
import tap

import weft
from weft import coll
from weft._values import DroppedOperations

KEY = bytes(range(32))
RANKS = 3
OTHER_ORDER = np.dtype(np.float32).newbyteorder()


def job(work, ranks=RANKS, **config):
    """Run work(comm) at all ranks concurrently. -> their results; raises the exception of one"""
    comms = [coll.Communicator(rank, ranks, key=KEY, **config) for rank in range(ranks)]
    addresses = [comm.address for comm in comms]
    results, errors = [None] * ranks, []
    joined = threading.Barrier(ranks)  # no rank fails while another still joins

    def run(rank):
        try:
            comms[rank].join(addresses)
            joined.wait(60)
            results[rank] = work(comms[rank])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for comm in comms:
        comm.close()
    if errors:
        raise errors[0]
    return results


class Plans(unittest.TestCase):
    def test_join_sets_the_plan_of_the_configuration(self):
        def work(comm):
            out = comm.all_reduce(np.arange(40000, dtype=np.int64) + comm.rank)
            comm.all_reduce(np.ones(40000, np.float32), bound=0.1)  # along slices
            counters = comm.counters()
            return out, counters["plan_operations"], counters["plan_trees"]

        for out, planned, trees in job(work, plan="trees", link_bps=10**9):
            np.testing.assert_array_equal(out, RANKS * np.arange(40000) + 3)
            self.assertEqual((planned, trees), (2, 1))

    def test_a_plan_can_be_set_and_ended(self):
        def work(comm):
            rate = 10**8 if comm.rank == 1 else 10**9
            planned = comm.set_plan("auto", up_bps=rate, host=comm.rank + 1)
            out = comm.all_reduce(np.ones(50000, np.float32))
            ended = comm.set_plan("none")
            return planned, float(out.sum()), ended["form"]

        results = job(work)
        for planned, total, ended in results:
            self.assertEqual((planned["form"], planned["hosts"], planned["owners"]), ("slices", 3, 2))
            self.assertLess(planned["slices_ns"], planned["equal_ns"])
            self.assertEqual((total, ended), (150000.0, "none"))
        self.assertEqual([planned["own_ppm"] // 1000 for planned, _, _ in results], [500, 0, 500])

    def test_wrong_plans_are_refused(self):
        with self.assertRaisesRegex(ValueError, "plan is 'fast'; choose one of none, auto, slices, trees"):
            coll.Communicator(0, 1, key=KEY, plan="fast")
        with coll.Communicator(0, 1, key=KEY) as comm, self.assertRaisesRegex(weft.InvalidError, "1 Mbit/s"):
            comm.set_plan("auto", up_bps=5)


class Operations(unittest.TestCase):
    def test_each_kind(self):
        def work(comm):
            r, n = comm.rank, comm.ranks
            block = np.full((2, 3), r, dtype=np.int32)
            blocks = np.arange(n * 2, dtype=np.float64).reshape(n, 2) + 100 * r
            to, from_ = (r + 1) % n, (r - 1) % n
            sent = comm.send(block, to, tag=5, wait=False)
            got = comm.recv(np.zeros((2, 3), np.int32), from_, tag=5)
            sent.wait()
            return {
                "all_reduce": comm.all_reduce(block),
                "max": comm.all_reduce(block, reduction="max"),
                "mean": comm.all_reduce(block.astype(np.float16), reduction="mean"),
                "reduce": comm.reduce(block, root=1),
                "reduce_scatter": comm.reduce_scatter(blocks),
                "all_gather": comm.all_gather(block),
                "gather": comm.gather(block, root=2),
                "broadcast": comm.broadcast(block.copy(), root=2),
                "scatter": comm.scatter(blocks if r == 0 else np.zeros(2)),
                "all_to_all": comm.all_to_all(blocks),
                "barrier": comm.barrier(),
                "recv": got,
            }

        for r, got in enumerate(job(work)):
            blocks = [np.arange(6.0).reshape(3, 2) + 100 * i for i in range(RANKS)]
            np.testing.assert_array_equal(got["all_reduce"], np.full((2, 3), 3))
            np.testing.assert_array_equal(got["max"], np.full((2, 3), 2))
            np.testing.assert_array_equal(got["mean"], np.full((2, 3), 1, np.float16))
            self.assertEqual(got["mean"].dtype, np.float16)
            self.assertEqual(got["reduce"] is None, r != 1)
            np.testing.assert_array_equal(got["reduce_scatter"], sum(blocks)[r])
            np.testing.assert_array_equal(got["all_gather"][:, 1, 2], [0, 1, 2])
            self.assertEqual(got["gather"] is None, r != 2)
            np.testing.assert_array_equal(got["broadcast"], np.full((2, 3), 2))
            np.testing.assert_array_equal(got["scatter"], blocks[0][r])
            np.testing.assert_array_equal(got["all_to_all"], np.stack([b[r] for b in blocks]))
            np.testing.assert_array_equal(got["recv"], np.full((2, 3), (r - 1) % RANKS))

    def test_results_go_where_they_are_told(self):
        def work(comm):
            array = np.full(1000, 1.5, dtype=np.float32)
            out = np.zeros(1000, dtype=np.float32)
            same = comm.all_reduce(array, out=array)
            return same is array and comm.all_reduce(array, out=out) is out and out[999]

        self.assertEqual(job(work), [13.5] * RANKS)

    def test_many_are_under_way_and_some_dropped(self):
        def work(comm):
            arrays = [np.full(500, comm.rank + i, dtype=np.float64) for i in range(100)]
            works = [comm.all_reduce(array, wait=False) for array in arrays[:20]]
            for array in arrays:
                comm.all_reduce(array, wait=False)  # nobody waits
            gc.collect()
            sums = [work.wait()[0] for work in works]
            comm.barrier()
            return sums, all(work.done() for work in works), comm.counters()["operations"]

        for sums, done, operations in job(work, ops_max=40):
            self.assertEqual(sums, [3 + 3 * i for i in range(20)])
            self.assertTrue(done)
            self.assertEqual(operations, 121)

    def test_groups(self):
        def work(comm):
            pair = comm.group([2, 0])
            if comm.rank == 1:
                with self.assertRaises(weft.InvalidError):
                    comm.barrier(group=pair)
                return None
            self.assertEqual(pair.rank, 0 if comm.rank == 2 else 1)
            return comm.broadcast(np.array([comm.rank]), group=pair)[0]

        self.assertEqual(job(work), [2, None, 2])

    def test_what_is_missing_is_kept(self):
        rounds, n = 20, 50_000

        def work(comm):
            feedback = coll.Feedback(n)
            sent = np.full(n, comm.rank + 1, dtype=np.float32)
            total, missing = np.zeros(n, dtype=np.float32), 0
            for _ in range(rounds):
                work = comm.all_reduce(sent, bound=0.3, feedback=feedback, wait=False)
                total += work.wait()
                missing += work.own_missing
            return total, feedback.residual, missing

        got = job(work, packet_bytes=1472, inject_loss_ppm=50_000)
        for total, _, _ in got:
            np.testing.assert_array_equal(total, got[0][0])
        kept = sum(residual for _, residual, _ in got)
        np.testing.assert_array_equal(got[0][0] + kept, np.full(n, rounds * 6))
        self.assertGreater(sum(missing for _, _, missing in got), 0)


    def test_what_a_reduce_scatter_misses_is_kept(self):
        rounds, block = 20, 10_001

        def work(comm):
            feedback = coll.Feedback(RANKS * block)
            # As the counters of an all_reduce of this many elements, and what is after them in memory.
            counters = len(feedback.missed)
            memory = np.full(counters + 100, 7, dtype=np.uint8)
            memory[:counters] = 0
            feedback.missed = memory[:counters]
            sent = np.full((RANKS, block), comm.rank + 1, dtype=np.float32)
            total, missing = np.zeros(block, dtype=np.float32), 0
            for _ in range(rounds):
                work = comm.reduce_scatter(sent, bound=0.3, feedback=feedback, wait=False)
                total += work.wait()
                missing += work.own_missing
            return total, feedback.residual.reshape(RANKS, block), missing, memory[counters:]

        got = job(work, packet_bytes=1472, inject_loss_ppm=50_000)
        kept = sum(residual for _, residual, _, _ in got)
        for rank, (total, _, _, after) in enumerate(got):
            np.testing.assert_array_equal(total + kept[rank], np.full(block, rounds * 6))
            np.testing.assert_array_equal(after, np.full(100, 7))
        self.assertGreater(sum(missing for _, _, missing, _ in got), 0)

    def test_two_threads_collect_what_was_dropped(self):
        def work(comm):
            works = [comm.all_reduce(np.ones(1), wait=False) for _ in range(2)]
            numbers = [one._number for one in works]
            comm.barrier()
            del works
            gc.collect()
            wait, asked, errors = comm._wait, [], []

            def collect():
                try:
                    comm._reap()
                except Exception as error:
                    errors.append(error)

            def while_another_thread_collects(number, *rest):
                asked.append(number)
                if len(asked) == 1:
                    other = threading.Thread(target=collect)
                    other.start()
                    other.join()
                return wait(number, *rest)

            comm._wait = while_another_thread_collects
            collect()
            return sorted(asked) == numbers, errors

        self.assertEqual(job(work, ranks=1), [(True, [])])

    def test_who_needs_what_another_thread_collects_waits_for_it(self):
        operations = DroppedOperations()
        operations.add(7)
        inside, waits, got = threading.Event(), threading.Event(), {}
        wait = operations._changed.wait
        operations._changed.wait = lambda seconds: waits.set() or wait(seconds)

        def end(number):
            inside.set()
            waits.wait(60)
            return True

        first = threading.Thread(target=lambda: got.update(first=operations.collect_one(end, 0)))
        first.start()
        inside.wait(60)
        operations.add(8)
        operations.collect(lambda number: got.update(collected=number) or False)
        operations._numbers.remove(8)
        got["second"] = operations.collect_one(end, 0)
        first.join()
        self.assertEqual(got, {"first": True, "collected": 8, "second": True})
        self.assertFalse(operations.collect_one(end, 1))
        self.assertTrue(operations.collect_one(end, 0))  # one has ended since

    def test_ctrl_c_loses_no_dropped_operation(self):
        for call in (lambda operations, end: operations.collect_one(end, 0), DroppedOperations.collect):
            for lines in range(1, 1000):
                operations = DroppedOperations()
                operations.add(7)
                entered, left, asked = [], lines, []

                def interrupt(frame, event, _):
                    nonlocal left
                    if frame.f_code.co_filename != DroppedOperations.add.__code__.co_filename:
                        return None
                    left -= event == "line"
                    if left == 0 and event == "line":
                        sys.settrace(None)
                        raise KeyboardInterrupt
                    return interrupt

                def end(number):
                    sys.settrace(None)
                    entered.append(number)
                    return True

                try:
                    sys.settrace(interrupt)
                    call(operations, end)
                except KeyboardInterrupt:
                    # Since Python 3.10 a trace function is also called when "with" ends, and an exception there
                    # skips __exit__; one of a signal does not.
                    if operations._changed._is_owned():
                        operations._lock.release()
                finally:
                    sys.settrace(None)
                if entered:
                    break
                operations.collect(lambda number: asked.append(number) or True)
                self.assertEqual(asked, [7], f"Ctrl-C at line {lines}")
                got = []
                other = threading.Thread(target=lambda: got.append(operations.collect_one(end, 1)), daemon=True)
                other.start()
                other.join(60)
                self.assertEqual(got, [False], f"Ctrl-C at line {lines}")
            self.assertGreater(lines, 3)


class Box(unittest.TestCase):
    """all_reduce through `weft aggregate --dense`"""

    def setUp(self):
        command = f"aggregate --dense 127.0.0.1:0 --security none --members {RANKS} --job 4 --float32"
        self.box = subprocess.Popen(
            [os.environ.get("WEFT_BIN", "weft"), *command.split()], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(self.end)
        place = re.match(r"box: ([0-9.]+:[0-9]+),", self.box.stdout.readline())
        self.config = {"box": place[1], "box_insecure": True, "box_job": 4, "box_float32": True}

    def end(self):
        if self.box.poll() is None:
            self.box.kill()
        self.box.wait()
        self.box.stdout.close()

    def test_sums_go_through_it(self):
        def work(comm):
            array = np.arange(100_000, dtype=np.float32) * (comm.rank + 1)
            sums = comm.all_reduce(array, wait=False)
            means = comm.all_reduce(array, reduction="mean", wait=False)
            least = comm.all_reduce(array, reduction="min", wait=False)
            got = sums.wait(), means.wait(), least.wait()
            np.testing.assert_array_equal(got[0], np.arange(100_000, dtype=np.float32) * 6)
            np.testing.assert_array_equal(got[1], np.arange(100_000, dtype=np.float32) * 2)
            np.testing.assert_array_equal(got[2], np.arange(100_000, dtype=np.float32))
            self.assertEqual([sums.boxed, means.boxed, least.boxed], ["box", "box", None])
            self.assertIsNone(comm.box_failure)
            if comm.rank == 0:  # as if it had failed, and was used again before the program looked
                with self.assertWarnsRegex(RuntimeWarning, "is used again"):
                    comm._look_at_box(types.SimpleNamespace(boxed=coll.lib.WEFT_COMM_FALLBACK))
            return comm.counters()["box_operations"]

        self.assertEqual(job(work, box_timeout_ns=60 * 10**9, **self.config), [2] * RANKS)

    def test_a_box_that_dies_is_not_needed(self):
        killed = threading.Barrier(RANKS, action=self.end)

        def work(comm):
            array = np.full(100_000, comm.rank + 1, dtype=np.float32)
            np.testing.assert_array_equal(comm.all_reduce(array), np.full(100_000, 6))
            killed.wait(60)
            works = [comm.all_reduce(array, wait=False) for _ in range(3)]
            for one in works:
                np.testing.assert_array_equal(one.wait(), np.full(100_000, 6))
            self.assertEqual([one.boxed for one in works], ["fallback"] * 3)
            self.assertIn("is not used", comm.box_failure)
            return comm.counters()["box_state"]

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = job(work, box_timeout_ns=500_000_000, **self.config)
        self.assertEqual(got, [coll.lib.WEFT_COMM_BOX_FAILED] * RANKS)
        texts = [str(one.message) for one in caught if "box" in str(one.message)]
        self.assertEqual(len(texts), RANKS, texts)  # one of each rank

    def test_where_warnings_are_errors(self):
        self.end()

        def work(comm):
            array = np.full(100_000, comm.rank + 1, dtype=np.float32)
            if comm.rank == 0:  # dropped: it is no error of a later call
                comm.all_reduce(array, wait=False)
                self.assertTrue(comm._reap_one(0))
            else:
                one = comm.all_reduce(array, wait=False)
                with self.assertRaises(RuntimeWarning):
                    one.wait()
                self.assertEqual(one.boxed, "fallback")
                self.assertEqual(one.contributors_min, RANKS)
                np.testing.assert_array_equal(one.wait(), np.full(100_000, 6))

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            job(work, box_timeout_ns=500_000_000, **self.config)

    def test_it_has_to_be_asked_for(self):
        with self.assertRaises(weft.InvalidError) as caught:
            coll.Communicator(0, RANKS, key=KEY, **{**self.config, "box_insecure": False})
        self.assertIn("not authenticated", str(caught.exception))


class Replaced:
    def __init__(self, functions):
        self.__dict__.update(functions)

    def __getattr__(self, name):
        return getattr(Mistakes.native, name)


class Mistakes(unittest.TestCase):
    def test_arguments_that_make_no_sense(self):
        def work(comm):
            good = np.zeros(4, dtype=np.float32)
            for error, call in (
                (TypeError, lambda: comm.all_reduce([1.0])),
                (TypeError, lambda: comm.all_reduce(np.zeros(4, dtype=np.complex64))),
                (TypeError, lambda: comm.all_reduce(np.zeros((4, 4))[:, 1])),
                (TypeError, lambda: comm.all_reduce(good, out=np.zeros(3, dtype=np.float32))),
                (TypeError, lambda: comm.all_reduce(good, out=np.zeros(4))),
                (TypeError, lambda: comm.all_reduce(good, feedback=coll.Feedback(3))),
                (TypeError, lambda: comm.all_to_all(np.zeros((5, 1)))),
                (TypeError, lambda: comm.all_reduce(good.astype(OTHER_ORDER))),
                (TypeError, lambda: comm.all_reduce(good, out=good.astype(OTHER_ORDER))),
                (ValueError, lambda: comm.all_reduce(good, reduction="median")),
                (weft.InvalidError, lambda: comm.all_reduce(good, bound=1.0)),
                (weft.InvalidError, lambda: comm.all_reduce(good, reduction="xor")),
                (weft.InvalidError, lambda: comm.broadcast(good, root=1)),
                (weft.InvalidError, lambda: comm.send(good, 0)),
                (ValueError, lambda: comm.join([])),
            ):
                with self.assertRaises(error):
                    call()
            return comm.all_reduce(good).sum()

        self.assertEqual(job(work, ranks=1), [0])

    def test_another_byte_order_is_refused(self):
        def work(comm):
            good = np.zeros(2, dtype=np.float32)
            with self.assertRaisesRegex(TypeError, "byte order"):
                comm.all_reduce(good.astype(OTHER_ORDER))
            with self.assertRaisesRegex(TypeError, "byte order"):
                comm.recv(good.astype(OTHER_ORDER), 1 - comm.rank)
            if comm.rank == 1:
                with self.assertRaisesRegex(TypeError, "byte order"):
                    comm.scatter(good.astype(OTHER_ORDER))
            return comm.all_reduce(good.astype(OTHER_ORDER).astype(np.float32)).tolist()

        self.assertEqual(job(work, ranks=2), [[0, 0]] * 2)

    def test_configurations_that_make_no_sense(self):
        for config in ({"rank": 2}, {"epoch": 2**41}, {"host": "nowhere.example"}):
            with self.assertRaises(weft.InvalidError):
                coll.Communicator(**{"rank": 0, "ranks": 2, "key": KEY, **config})
        with self.assertRaises(TypeError):
            coll.Communicator(0, 2, key=KEY, no_such_field=1)
        with self.assertRaises(weft.InvalidError):
            coll.Communicator(0, 2, key=KEY, security="maybe")

    def test_a_failure_is_told_to_all(self):
        def work(comm):
            if comm.rank == 1:
                comm.abort("out of paper")
            with self.assertRaises(weft.PeerError) as caught:
                comm.barrier()
            self.assertIn("out of paper", str(caught.exception))
            self.assertIn("rank 1", comm.failure)
            return True

        self.assertEqual(job(work), [True] * RANKS)

    def test_an_exception_in_with_aborts(self):
        def work(comm):
            if comm.rank == 0:
                with self.assertRaises(KeyError), comm:
                    raise KeyError("lost")
                return True
            with self.assertRaises(weft.PeerError) as caught:
                comm.barrier()
            self.assertIn("KeyError", str(caught.exception))
            return True

        self.assertEqual(job(work), [True] * RANKS)

    def test_who_does_not_come_is_named(self):
        with coll.Communicator(0, 3, key=KEY) as comm:
            with self.assertRaises(weft.WaitTimeoutError) as caught:
                comm.join([comm.address] * 3, timeout=0.2)
        self.assertIn("1, 2", str(caught.exception))

    def test_ctrl_c_ends_a_wait(self):
        comms = [coll.Communicator(rank, 2, key=KEY) for rank in range(2)]
        addresses = [comm.address for comm in comms]
        thread = threading.Thread(target=comms[1].join, args=(addresses,))
        thread.start()
        comms[0].join(addresses)
        thread.join()
        with self.assertRaises(KeyboardInterrupt):
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            comms[0].barrier()
        for comm in comms:
            comm.close()
        with self.assertRaises(weft.Error):
            comms[0].barrier()
        comms[0].close()


    def test_ctrl_c_when_an_operation_has_begun_loses_nothing(self):
        array = np.ones(4, dtype=np.float32)
        with coll.Communicator(0, 1, key=KEY, ops_max=1) as comm:
            comm.join([comm.address])

            def begin(*arguments):
                self.native.weft_comm_begin(*arguments)
                raise KeyboardInterrupt

            with self.replaced(weft_comm_begin=begin), self.assertRaises(KeyboardInterrupt):
                comm.all_reduce(array)
            self.assertTrue(any(one is array for lent in comm._lent.values() for one in lent))
            self.assertEqual(comm.all_reduce(array).tolist(), [1] * 4)
            self.assertEqual(comm._lent, {})

    def test_ctrl_c_at_any_line_of_begin_loses_nothing(self):
        array = np.ones(4, dtype=np.float32)
        with coll.Communicator(0, 1, key=KEY, ops_max=1) as comm:
            comm.join([comm.address])
            for lines in range(1, 1000):
                begin = coll.Communicator.begin, coll.Work.__init__
                if not tap.interrupted(lines, begin, tap.ctrl_c, lambda: comm.all_reduce(array, wait=False).wait()):
                    break
                comm.all_reduce(array)
                self.assertEqual((comm._lent, comm._dropped._numbers), ({}, collections.deque()), f"line {lines}")
        self.assertGreater(lines, 10)

    def test_a_signal_handler_may_abort_or_close_at_any_line_of_a_call(self):
        for name in ("abort", "close"):
            for lines in range(1, 1000):
                comm, ended = coll.Communicator(0, 1, key=KEY), []

                def call():
                    try:
                        called = (coll.Communicator._called,)
                        ended.append(tap.interrupted(lines, called, getattr(comm, name), comm.counters))
                    except weft.Error:
                        ended.append(True)  # it is closed

                thread = threading.Thread(target=call, daemon=True)
                thread.start()
                thread.join(10)
                self.assertEqual(len(ended), 1, f"{name} at line {lines} ends")
                comm.close()
                if not ended[0]:
                    break
            self.assertGreater(lines, 3)

    def test_close_ends_a_set_plan_of_another_thread(self):
        comms = [coll.Communicator(rank, 2, key=KEY) for rank in range(2)]
        addresses = [comm.address for comm in comms]
        thread = threading.Thread(target=comms[1].join, args=(addresses,))
        thread.start()
        comms[0].join(addresses)
        thread.join()
        inside, said = threading.Event(), []

        def set_plan(*arguments):
            inside.set()
            return self.native.weft_comm_plan_set(*arguments)

        def plan():
            try:
                comms[0].set_plan(timeout=100)
            except weft.Error as error:
                said.append(str(error))

        with self.replaced(weft_comm_plan_set=set_plan), mock.patch.object(coll, "CLOSE_S", 0.01):
            thread = threading.Thread(target=plan)
            thread.start()
            inside.wait(60)
            comms[0].close()
            thread.join()
        comms[1].close()
        self.assertEqual(len(said), 1)
        self.assertNotIn("has not", said[0])

    def test_close_waits_for_calls_of_other_threads(self):
        comms = [coll.Communicator(rank, 2, key=KEY) for rank in range(2)]
        addresses = [comm.address for comm in comms]
        thread = threading.Thread(target=comms[1].join, args=(addresses,))
        thread.start()
        comms[0].join(addresses)
        thread.join()
        inside, waits, said, lock = [], threading.Event(), [], threading.Lock()

        def wait(*arguments):
            with lock:
                inside.append(1)
            waits.set()
            try:
                return self.native.weft_comm_wait(*arguments)
            finally:
                with lock:
                    inside.pop()

        def close(comm):
            said.append(len(inside))
            while inside:
                time.sleep(0.001)
            self.native.weft_comm_close(comm)

        def barrier():
            try:
                comms[0].barrier()
            except weft.Error as error:
                said.append(str(error))

        with self.replaced(weft_comm_wait=wait, weft_comm_close=close):
            thread = threading.Thread(target=barrier)
            thread.start()
            waits.wait(60)
            comms[0].close()
            thread.join()
        comms[1].close()
        self.assertEqual(sorted(map(str, said)), ["0", "this communicator is closed"])

    native = coll.lib

    @contextlib.contextmanager
    def replaced(self, **functions):
        """Functions of the library, as weft.coll sees them"""
        coll.lib = Replaced(functions)
        try:
            yield
        finally:
            coll.lib = self.native

    def test_ctrl_c_ends_a_wait_for_what_was_dropped(self):
        comms = [coll.Communicator(rank, 2, key=KEY, ops_max=2) for rank in range(2)]
        addresses = [comm.address for comm in comms]
        thread = threading.Thread(target=comms[1].join, args=(addresses,))
        thread.start()
        comms[0].join(addresses)
        thread.join()
        array = np.ones(4, dtype=np.float32)
        for _ in range(2):
            comms[0].all_reduce(array, wait=False, timeout=20)
        gc.collect()
        with self.assertRaises(KeyboardInterrupt):
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            comms[0].all_reduce(array)
        self.assertIsNone(comms[0].failure)
        # They are still to be collected, so that others can begin.
        thread = threading.Thread(target=lambda: [comms[1].all_reduce(array) for _ in range(3)])
        thread.start()
        self.assertEqual(comms[0].all_reduce(array).tolist(), [2] * 4)
        thread.join()
        for comm in comms:
            comm.close()


if __name__ == "__main__":
    sys.exit(tap.main())
