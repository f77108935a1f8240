#!/usr/bin/env python3
"""Time of training jobs between the hosts of a lab: the models of examples/torch over weft and over Gloo.

    weft lab run --hosts 4 --rate 50mbit --buffer 64kb --loss 0.01 -- \\
        python3 bench/torch_jobs.py --data DIR --models mlp,mf,cnn,rnn --steps 40

Every job makes the same number of steps from the same start, with the same rows: at bound 0 the loss after
each step is the same over any backend, except for the order in which floats are added. The backends run in
turn, one job each per repetition. They are those of bench/torch_allreduce.py;
"weft:hook" is weft with the model's bound, by default the paper's (Table 3), and error feedback.

A step is that of DistributedDataParallel with a batch of the model's default size. Before its forward it
sleeps for --compute-ms: the time of an accelerator, during which the host's processor is idle, so that the
number of hosts on this machine's processors does not matter. Output for each backend:

    step       mean, p50 and p99 of a step, the slowest rank's, in ms; the first two are not counted
    x          the same job's time over weft, times that (above 1: weft is faster)
    comm       share of a step that is not computing: 1 - compute / mean. compute is a step without
               exchange, all ranks at once, measured in the same processes before the job
    net        mean and p99 of an all_reduce of as many floats on its own: the paper's 2 x network time
    formula    compute + net, the paper's time of a step (section 3.1), and what the tail of net adds to it:
               (compute + p99) / (compute + mean), the paper's Table 1
    loss       mean training loss of the last quarter of the steps, and the largest difference from weft's
               after any step
"""

import argparse
import contextlib
import datetime
import json
import os
import statistics
import sys
import tempfile
import time

import torch_ranks
from torch_ranks import ROOT

BOUNDS = {"mf": 0.35, "mlp": 0.15, "cnn": 0.15, "rnn": 0.10}  # [apnet19], Table 3
# The time of an exchange over 4 x 50 Mbit/s plus the computation on the processors of a small
# machine.
COMPUTE_MS = {"mf": 110, "mlp": 80, "cnn": 50, "rnn": 350}
UNCOUNTED = 2  # warm-up: DDP builds its buckets, connections adapt their rate


def parsed():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="mlp,mf,cnn,rnn")
    parser.add_argument("--backends", default="weft,weft:hook,gloo,gloo:bbr,gloo:cubic:rto5,gloo:bbr:rto5")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40, help="of each job")
    parser.add_argument("--rounds", type=int, default=10,
                        help="steps without exchange, and exchanges on their own, before the job")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--compute-ms", type=float, help="slept in a step (default: the model's)")
    parser.add_argument("--busy", action="store_true",
                        help="compute for --compute-ms of a processor's time instead, as where ranks have no "
                        "accelerator: hosts that share this machine's processors then wait for each other")
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA_DIR", "tiny"),
                        help='folder of the data sets, or "tiny" (default: WEFT_DATA_DIR)')
    parser.add_argument("--timeout-s", type=float, default=60.0, help="seconds for one job")
    parser.add_argument("--samples", metavar="FILE", help="add a line of JSON for each job")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- a rank ----


class Rank:
    """The process of a host; loads the rows once for all jobs."""

    def __init__(self, a):
        import torch
        import torch.distributed as dist

        sys.path.insert(0, os.path.join(ROOT, "python"))
        sys.path.insert(0, os.path.join(ROOT, "examples", "torch"))
        self.a, self.torch, self.dist = a, torch, dist
        torch.set_num_threads(1)
        self.made = task_of(a, torch.load(os.path.join(a.folder, "rows")))
        self.slept_s = (COMPUTE_MS[a.models] if a.compute_ms is None else a.compute_ms) / 1e3
        self.square = torch.ones(128, 128)
        rows = len(self.made.train[0])
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(1))
        self.rows = [tensor[order] for tensor in self.made.train]

    def job(self, backend, number):
        import weft.torch

        torch, dist, a = self.torch, self.dist, self.a
        name, _, rest = backend.partition(":")
        store = dist.FileStore(os.path.join(a.folder, f"store{number}"), a.ranks)
        dist.init_process_group(name, store=store, rank=a.rank, world_size=a.ranks,
                                timeout=datetime.timedelta(seconds=120))
        torch.manual_seed(1)
        module = self.made.make()
        model = torch.nn.parallel.DistributedDataParallel(module)
        bound = BOUNDS[a.models] if rest == "hook" else 0.0
        state = None
        if bound:
            state = weft.torch.HookState(bound=bound)
            model.register_comm_hook(state, weft.torch.allreduce_hook)
        optimizer = torch.optim.SGD(module.parameters(), lr=self.made.rate)
        start = [parameter.detach().clone() for parameter in module.parameters()]
        compute = self.timed(a.rounds, lambda step: self.step(model, optimizer, step, exchange=False))
        with torch.no_grad():
            for parameter, first in zip(module.parameters(), start):
                parameter.copy_(first)
        elements = sum(parameter.numel() for parameter in module.parameters())
        net = self.timed(a.rounds, self.exchange_of(elements, bound))
        losses = []
        steps = self.timed(a.steps, lambda step: losses.append(self.step(model, optimizer, step)),
                           apart=False)
        losses = torch.tensor(losses)
        dist.all_reduce(losses)
        answer = {
            "model": a.models,
            "backend": backend,
            "bytes": 4 * elements,
            "compute": compute[1:],
            "net": net[1:],
            "steps": steps,
            "losses": (losses / a.ranks).tolist(),
            "missing": state.elements_missing / max(1, state.elements_sent) if state else 0.0,
        }
        dist.barrier()
        dist.destroy_process_group()
        return answer

    def step(self, model, optimizer, step, exchange=True):
        """-> loss of this rank's batch"""
        a, task = self.a, self.made
        rows, batch = len(self.rows[0]), task.batch
        first = (step * a.ranks + a.rank) * batch % (rows - batch)
        self.compute()
        optimizer.zero_grad(set_to_none=False)
        with contextlib.nullcontext() if exchange else model.no_sync():
            loss = task.loss(model, *(t[first : first + batch] for t in self.rows))
            loss.backward()
        optimizer.step()
        return loss.item()

    def compute(self):
        if not self.a.busy:
            time.sleep(self.slept_s)
            return
        end = time.thread_time() + self.slept_s
        while time.thread_time() < end:
            self.torch.mm(self.square, self.square)

    def exchange_of(self, elements, bound):
        import weft.torch
        from weft.coll import Feedback

        vector = self.torch.ones(elements)
        feedback = Feedback(elements, stream=1000) if bound else None

        def exchange(_):
            if bound:
                weft.torch.all_reduce(vector, bound=bound, feedback=feedback)
            else:
                self.dist.all_reduce(vector)
            vector.fill_(1)

        return exchange

    def timed(self, count, what, apart=True):
        """Seconds of each call, of the slowest rank. apart: all ranks begin each call together."""
        took = []
        self.dist.barrier()
        for i in range(count):
            if apart:
                self.dist.barrier()
            begin = time.perf_counter()
            what(i)
            took.append(time.perf_counter() - begin)
        took = self.torch.tensor(took, dtype=self.torch.float64)
        self.dist.all_reduce(took, op=self.dist.ReduceOp.MAX)
        return took.tolist()


def task_of(a, rows=None):
    """The model's Task. rows: the data already read by data.py, so that not every rank reads it."""
    sys.path.insert(0, os.path.join(ROOT, "examples", "torch"))
    import data
    import models

    read = READERS[a.models]
    if rows is not None:
        setattr(data, read, lambda *_, **__: rows)
    return models.task(a.models, "tiny" if a.data == "tiny" else "small", a.data)


READERS = {"mf": "ratings", "mlp": "topics", "cnn": "pictures", "rnn": "sentences"}


# ---- all of them ----


def read_rows(a, path):
    """Write the result of the model's reader to a file for the ranks."""
    import torch

    sys.path.insert(0, os.path.join(ROOT, "examples", "torch"))
    import data

    kept = []
    name = READERS[a.models]
    reader = getattr(data, name)

    def keeping(*arguments, **named):
        kept.append(reader(*arguments, **named))
        return kept[-1]

    setattr(data, name, keeping)
    task_of(a)
    setattr(data, name, reader)
    torch.save(kept[0] if kept else None, path)


def jobs(a):
    """Run the jobs of one model in turn, up to the first failure. -> the completed jobs"""
    done = []
    with tempfile.TemporaryDirectory() as folder:
        read_rows(a, os.path.join(folder, "rows"))
        arguments = ["--folder", folder, "--models", a.models, "--ranks", str(a.ranks)]
        arguments += ["--steps", str(a.steps), "--rounds", str(a.rounds), "--data", a.data]
        arguments += [] if a.compute_ms is None else ["--compute-ms", str(a.compute_ms)]
        arguments += ["--busy"] if a.busy else []
        with torch_ranks.Ranks(__file__, a.ranks, folder, arguments) as ranks:
            for backend in a.backends.split(",") * a.repetitions:
                job = ranks.job(backend, a.timeout_s)
                if job is None:
                    print(f"{a.models}, {backend}: not done within {a.timeout_s:g} s, or failed",
                          file=sys.stderr)
                    break
                done.append(job)
    return done


def p99(values):
    values = sorted(values)
    place = 0.99 * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def report(done):
    """Print a line per backend, over all its jobs."""
    of_backend = {}
    for job in done:
        of_backend.setdefault(job["backend"], []).append(job)
    first = next(iter(of_backend.values()))
    base_s = statistics.mean(sum((job["steps"][UNCOUNTED:] for job in first), []))
    print(f"\n{done[0]['model']}, {done[0]['bytes']} bytes of gradients, ms:")
    print(f"{'':16} {'mean':>7} {'p50':>7} {'p99':>7} {'x':>5} {'compute':>7} {'comm':>5} "
          f"{'net':>7} {'p99':>7} {'formula':>7} {'tail':>5} {'loss':>8} {'differs':>8} {'missing':>7}")
    for backend, some in of_backend.items():
        steps = sum((job["steps"][UNCOUNTED:] for job in some), [])
        compute = statistics.mean(sum((job["compute"] for job in some), []))
        nets = sum((job["net"] for job in some), [])
        net, tail, mean = statistics.mean(nets), p99(nets), statistics.mean(steps)
        losses, theirs = some[0]["losses"], first[0]["losses"]
        loss = statistics.mean(losses[-(len(losses) // 4) :])
        differs = max(abs(one - other) for one, other in zip(losses, theirs))
        print(f"{backend:16} {mean * 1e3:7.1f} {statistics.median(steps) * 1e3:7.1f} "
              f"{p99(steps) * 1e3:7.1f} {mean / base_s:5.2f} {compute * 1e3:7.1f} "
              f"{1 - compute / mean:5.2f} {net * 1e3:7.1f} {tail * 1e3:7.1f} "
              f"{(compute + net) * 1e3:7.1f} {(compute + tail) / (compute + net):5.2f} "
              f"{loss:8.4f} {differs:8.1e} {some[0]['missing']:7.3f}", flush=True)


def main():
    a = parsed()
    if a.rank is not None:
        torch_ranks.serve(Rank(a).job)
        return
    failed = False
    for model in a.models.split(","):
        one = argparse.Namespace(**{**vars(a), "models": model})
        done = jobs(one)
        failed = failed or len(done) < len(a.backends.split(",")) * a.repetitions
        if a.samples:
            with open(a.samples, "a") as file:
                file.writelines(json.dumps(job) + "\n" for job in done)
        if done:
            report(done)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
