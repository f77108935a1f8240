"""A communicator with a thread that completes its operations, so that futures complete without a waiting
thread.

The thread sleeps in poll until an operation is done. It also sees Ctrl-C: while the main thread is inside
C++ code of PyTorch, Python cannot raise KeyboardInterrupt, so an operation that waits for other ranks
would keep it there. The communicator is then aborted, which ends the wait.
"""

import atexit
import collections
import contextlib
import os
import select
import signal
import threading
import time
import weakref

from .._library import AgainError, Error, error_of, ffi, lib, text
from .._values import SLICE_NS

INTERRUPT_S = 0.5  # operations in progress for longer than this after Ctrl-C are aborted

_all = weakref.WeakSet()


class _Interrupts:
    """Detects Ctrl-C by a pipe (signal.set_wakeup_fd)."""

    def __init__(self):
        self.last = 0.0
        self._read = self._write = -1

    def watch(self):
        """Only in the main thread, and if no other code uses set_wakeup_fd."""
        if self._read >= 0 or threading.current_thread() is not threading.main_thread():
            return
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            os.close(read)
            os.close(write)
            return
        self._read, self._write = read, write

    def own(self):
        """In the child of a fork: a pipe of its own in place of its parent's, which would take a Ctrl-C of the
        child alone for one of the parent."""
        if self._read < 0:
            return
        self.last = 0.0
        for fd, ours in zip(os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC), (self._read, self._write)):
            os.dup2(fd, ours, inheritable=False)
            os.close(fd)

    def look(self):
        """Time of the last Ctrl-C, if it ends the program; 0 = never."""
        try:
            while self._read >= 0 and (came := os.read(self._read, 256)):
                if signal.SIGINT in came:
                    self.last = time.monotonic()
        except BlockingIOError:
            pass
        ends = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        return self.last if ends else 0.0


_interrupts = _Interrupts()
os.register_at_fork(after_in_child=_interrupts.own)


def _done():
    """struct weft_comm_done, for the library to fill in"""
    done = ffi.new("struct weft_comm_done *")
    done.size = ffi.sizeof("struct weft_comm_done")
    return done


class Engine:
    """One communicator. begin() returns a number; the thread calls `ended` with it."""

    def __init__(self, comm):
        self.comm = comm
        self._lock = threading.Lock()
        self._pending = {}  # number: (when it began, what to call)
        self._late = collections.deque()  # completed, but `ended` is not called yet: arguments of _end
        self._waiting = {}  # thread: its waits of the library; a callback within a wait may wait, too
        self._closer = None  # the thread that closes, or has closed, this object
        self._stop = threading.Event()
        self._pid = os.getpid()
        _interrupts.watch()
        fd = ffi.new("int *")
        comm._call(lib.weft_comm_fd, fd)
        self._fd = fd[0]
        self._thread = threading.Thread(target=self._run, name="weft", daemon=True)
        self._thread.start()
        _all.add(self)

    def begin(self, ended, *what, **fields):
        """Begin an operation, as Communicator.begin. ended(error or None, done) is called once: by this
        object's thread, or within wait(). -> its number"""
        self._check_process()
        while True:
            try:
                with self._lock:  # the thread must not see it done before it is registered
                    self._check_open()
                    work = self.comm.begin(*what, **fields)
                    number, work._number = work._number, None  # owned by the thread from here on
                    self._pending[number] = (time.monotonic(), ended)
                return number
            except AgainError:  # ops_max are in progress; those complete, or fail by their timeout
                if threading.current_thread() is self._thread:
                    self._take_one()
                else:
                    time.sleep(0.001)

    def abort(self, words):
        """Communicator.abort, unless it is closed."""
        self._check_process()
        with self._lock:
            self._check_open()
            self.comm.abort(words)

    def _check_process(self):
        """Without the lock: another thread may have held it at the fork, and none releases it in the child."""
        if os.getpid() != self._pid:
            raise Error("the process group was made before fork; the new process needs its own")

    def _check_open(self):
        """With the lock, which close() needs before it frees the communicator."""
        if self._stop.is_set():
            raise Error("the process group was destroyed")

    def wait(self, number, until):
        """Wait until time.monotonic() is `until` (None: forever), or `ended` of this operation was
        called, or is about to be.

        The waiting thread completes the operation itself. Passing the result through the engine's
        thread would cost two more context switches, and unused futures: 80 us of 370 for
        1 KB on loopback.
        """
        self._check_process()
        completes = threading.current_thread() is self._thread
        if completes:
            self._end_late()
        done = _done()
        status = lib.WEFT_TIMEOUT
        while status == lib.WEFT_TIMEOUT:
            left_ns = SLICE_NS if until is None else int((until - time.monotonic()) * 1e9)
            if left_ns <= 0:
                return
            status = self._wait_part(number, min(left_ns, SLICE_NS), done)
            if completes and status == lib.WEFT_TIMEOUT:
                self._look()
        if status not in (lib.WEFT_OK, lib.WEFT_PEER, lib.WEFT_NOTFOUND):
            raise error_of(status, text(lib.weft_comm_error(ffi.NULL)))

    def _wait_part(self, number, part_ns, done):
        """Wait in short parts: Ctrl-C is handled between parts, and close() waits for their end."""
        me = threading.get_ident()
        with self._lock:
            if self._stop.is_set():
                # In a callback that close() waits for, or calls: the operation would end only after it.
                if threading.current_thread() is self._thread or me in self._waiting or me == self._closer:
                    self._check_open()
                return lib.WEFT_NOTFOUND
            done.id = 0
            self._waiting[me] = self._waiting.get(me, 0) + 1
        try:
            return lib.weft_comm_wait(self.comm._pointer(), number, part_ns, done)
        finally:
            try:
                # Also if Ctrl-C arrived when it completed: the library has returned it already.
                if done.id != 0:
                    self._handle(lib.WEFT_OK if done.status == lib.WEFT_OK else lib.WEFT_PEER, done)
            finally:
                self._waiting[me] -= 1
                if self._waiting[me] == 0:
                    del self._waiting[me]

    def close(self):
        if os.getpid() != self._pid or self._stop.is_set():
            return
        with self._lock:
            self._stop.set()
            self._closer = threading.get_ident()
        while set(self._waiting) - {threading.get_ident()}:
            time.sleep(0.001)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._end_late()
        self.comm.close()
        for _, ended in self._take_all():
            ended("the process group was destroyed while this operation was in progress", None)

    def _take_all(self):
        with self._lock:
            pending, self._pending = self._pending, {}
        return list(pending.values())

    def _run(self):
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        done = _done()
        while not self._stop.is_set():
            if poll.poll(100):
                self._take(done)
            self._look()

    def _look(self):
        """Abort operations that still wait a while after Ctrl-C."""
        came = _interrupts.look()
        if came and time.monotonic() - came > INTERRUPT_S and self._waits_since(came):
            self.comm.abort("Ctrl-C")

    def _take(self, done):
        while not self._stop.is_set():  # a callback may close this object
            if not self._handle(lib.weft_comm_wait_any(self.comm._pointer(), 0, done), done):
                return
            self._end_late()

    def _take_one(self):
        """In a callback of the engine's thread, which completes operations otherwise: wait for one, so that
        another can begin. Its `ended` is called after this callback, because callbacks that call each
        other would use up the stack."""
        done = _done()
        status = lib.weft_comm_wait_any(self.comm._pointer(), SLICE_NS, done)
        if status in (lib.WEFT_OK, lib.WEFT_PEER):
            self._late.append(self._taken(status, done))
        elif status != lib.WEFT_TIMEOUT:  # other threads wait for all of them
            time.sleep(0.001)
        self._look()

    def _end_late(self):
        while self._late:
            self._end(*self._late.popleft())

    def _handle(self, status, done):
        """Process the status of a wait; False if no operation has ended."""
        if status not in (lib.WEFT_OK, lib.WEFT_PEER):
            return False
        self._end(*self._taken(status, done))
        return True

    def _taken(self, status, done):
        """-> the arguments of _end"""
        error = None if status == lib.WEFT_OK else text(lib.weft_comm_error(ffi.NULL))
        with self._lock:
            _, ended = self._pending.pop(done.id, (0, None))
            self.comm._lent.pop(done.id, None)
        return ended, error, done

    def _end(self, ended, error, done):
        if ended is not None:
            ended(error, done)
        if error is None:
            # Where warnings are errors, they would end the thread; so would a closed communicator.
            with contextlib.suppress(RuntimeWarning, Error):
                self.comm._look_at_box(done)

    def _waits_since(self, moment):
        with self._lock:
            return any(began <= moment for began, _ in self._pending.values())


@atexit.register
def _close_all():
    """Threads that hold Python objects must not outlive the interpreter."""
    for engine in list(_all):
        engine.close()
