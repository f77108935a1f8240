"""Tensors of a GPU: an operation works on copies in the host's memory.

    side stream, after the pending work of the caller's stream: copies to pinned memory
    host: waits for them, and begins the operation on the copies
    when it is done, side stream: copies back
    the future's callbacks, each in a stream of its own: the first one, which gives the future its value, makes its
    stream wait for the copies; PyTorch makes streams that use the value wait for that stream

So work that uses the result, on any stream, runs after the copies, and the host does not wait for
them. Device has the functions needed of CUDA; tests replace it. This was not yet run on a GPU.
"""

import datetime
import functools
import threading

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

error = getattr(dist, "DistBackendError", RuntimeError)


def put(tensor, source, non_blocking=False):
    """tensor.copy_(source) as an operation of the library: in any thread, for a tensor that requires a gradient,
    and for one of torch.inference_mode(), which copy_ would refuse in a thread without this mode."""
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        tensor.copy_(source, non_blocking=non_blocking)


class Device:
    """A CUDA device with a stream of its own for copies."""

    def __init__(self, device):
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def to_host(self, given, taken):
        """Pinned memory for tensors: completed copies of the inputs; space for the outputs."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            hosts = [self._host(tensor).copy_(tensor, non_blocking=True) for tensor in given]
            event = torch.cuda.Event()
            event.record(self._stream)
        for tensor in (*given, *taken):
            tensor.record_stream(self._stream)
        event.synchronize()
        return hosts, [self._host(tensor) for tensor in taken]

    @staticmethod
    def _host(tensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)

    def from_host(self, pairs):
        """Begin copies into tensors, (tensor, host) each. -> an event after them"""
        with torch.cuda.stream(self._stream):
            for tensor, host in pairs:
                put(tensor, host, non_blocking=True)
            event = torch.cuda.Event()
            event.record(self._stream)
        return event

    def future(self):
        return torch.futures.Future(devices=[self._device])

    def follow(self, event):
        """Later work of the calling thread's current stream waits for the event."""
        torch.cuda.current_stream(self._device).wait_event(event)


_devices = {}
_lock = threading.Lock()


def of(tensors):
    """The Device of tensors; None for those of the CPU."""
    if all(tensor.is_cpu for tensor in tensors):  # without creating a device for each
        return None
    places = {tensor.device for tensor in tensors}
    if len(places) > 1:
        raise error(f"tensors on {', '.join(sorted(map(str, places)))}; they must be on one device")
    place = places.pop()
    if place.type != "cuda":
        raise error(f"a tensor is on {place}; weft takes those of the CPU and of CUDA; move it there first")
    if any(tensor.is_sparse for tensor in tensors):
        raise error(f"a tensor is sparse and on {place}; weft supports sparse tensors only of the CPU")
    with _lock:
        if place not in _devices:
            _devices[place] = Device(place)
        return _devices[place]


class StagedWork(Work):
    """An operation on copies. inner: its Work; pairs: (tensor, host) to copy back; result: of the future."""

    def __init__(self, device, inner, pairs, result):
        super().__init__()
        self.device, self._inner, self._pairs, self._result = device, inner, pairs, result
        self._over = threading.Event()
        self._event = self._failure = None
        self._base = device.future()
        self._future = self._base.then(self._value)
        self._future.add_done_callback(lambda _: self._over.set())
        inner.get_future().add_done_callback(self._ended)

    def _ended(self, _):
        """Runs in the communicator's thread."""
        self._failure = self._inner.failure()
        if self._failure is None:
            try:
                self._event = self.device.from_host(self._pairs)
            except Exception as why:
                self._failure = f"after the operation: {why}"
        self._pairs = None
        self._base.set_result(None)

    def _value(self, _):
        """PyTorch runs it in a fresh stream, records an event in it afterwards, and makes streams that use the value
        wait for that."""
        if self._failure is not None:
            raise error(self._failure)
        self.device.follow(self._event)
        return self._result

    def failure(self):
        return self._failure

    def is_completed(self):
        return self._over.is_set()

    def is_success(self):
        return self._over.is_set() and self._failure is None

    def exception(self):
        return None if self._failure is None else error(self._failure)

    def wait(self, timeout=datetime.timedelta(0)):
        self._inner.wait(timeout)
        self._over.wait()
        if self._failure is not None:
            raise error(self._failure)
        self.device.follow(self._event)
        return True

    def get_future(self):
        return self._future

    def result(self):
        return self._result

    def forget(self):
        """Release the tensors, if it has ended well: only wait() may still be called."""
        if self.is_success():
            self._inner.forget()
            self._result = self._base = None
            self._future = torch.futures.Future()
            self._future.set_result(None)


def run(device, given, taken, result, begin):
    """begin(hosts): starts the operation on copies of `given`, then of `taken`. The tensors of `taken` are copied
    back; a tensor may be in both. -> StagedWork"""
    only = [tensor for tensor in taken if not any(tensor is one for one in given)]
    hosts, rooms = device.to_host(given, only)
    of_tensor = list(zip([*given, *only], [*hosts, *rooms]))
    host_of = lambda tensor: next(host for one, host in of_tensor if one is tensor)
    inner = begin(host_of)
    return StagedWork(device, inner, [(one, host_of(one)) for one in taken], result)


def _all_of(one):
    """Tensors of a tensor, a list, or a list of lists."""
    return [one] if isinstance(one, torch.Tensor) else [t for part in one for t in _all_of(part)]


def _same_shape(one, host_of):
    if isinstance(one, torch.Tensor):
        return host_of(one)
    return [_same_shape(part, host_of) for part in one]


def staged(taken, given):
    """Wrap a method of a group: the indices of the arguments that are tensors it writes, and tensors it
    reads."""

    def decorate(method):
        @functools.wraps(method)
        @torch.no_grad()
        def staged_method(self, *arguments, **named):
            reads = [t for i in given for t in _all_of(arguments[i])]
            writes = [t for i in taken for t in _all_of(arguments[i])]
            device = of([*reads, *writes])
            if device is None:
                return method(self, *arguments, **named)

            def begin(host_of):
                hosts = [
                    _same_shape(one, host_of) if i in given or i in taken else one
                    for i, one in enumerate(arguments)
                ]
                return method(self, *hosts, **named)

            result = arguments[taken[0]] if taken else []
            result = [result] if isinstance(result, torch.Tensor) else result
            return self.keep(run(device, reads, writes, result, begin))

        return staged_method

    return decorate
