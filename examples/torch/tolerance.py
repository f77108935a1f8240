#!/usr/bin/env python3
"""How many lost packets does a model tolerate? Epochs until a run with packet loss reaches the training
or validation loss of runs without it.

    python3 tolerance.py --results tolerance.jsonl                   all four models, reduced sizes
    python3 tolerance.py --results tolerance.jsonl --table4          also rnn from French to English, and cnn
                                                                     on each half of the classes (the paper's
                                                                     Table 4)
    python3 tolerance.py --results full.jsonl --full --processes 16  the paper's sizes: days
    python3 tolerance.py --results tolerance.jsonl --report          print the results so far

Four workers are simulated in one process. Each step, ranges of 352 gradients (a packet) of each worker
are lost with probability p, and the mean is computed in one of these ways:

    zero          what is lost counts as 0: divided by the number of workers
    count         divided by the number of contributions that arrived
    feedback      divided by the number of workers; what was lost is added to the worker's next step (weft's
                  default)
    zero, each    as zero, but single gradients are dropped instead of ranges, as in the paper
    smaller step  nothing is lost, and gradients are multiplied by 1 - p, the expected result of zero
    count, weft   and "feedback, weft": the same through weft.coll on loopback, where packets are lost, to
                  check that the result is the same (needs the package weft)

The target is the mean loss of the lossless runs at epoch 5 (mf: 3). For mf and mlp the validation loss is
compared, every quarter of an epoch; for cnn and rnn the mean training loss over the last n steps (n = steps
of an epoch), which is assigned to the middle of these steps. A run that has not reached the target after
three times as many epochs counts as not finished. Each run is divided by the lossless run with the same
seed, which has the same initial model and data order. All arms lose the same ranges. x1 is the largest p up
to which the upper end of the mean ratio's 95 % interval (bootstrap over seeds, or --interval t) is at most
1.10; x2 is the largest p up to which all seeds reach the target. docs/TOLERANCE.md has results.

Each run is a line of --results, written when it ends: after Ctrl-C the same command continues. If seeds are
added later, the target does not change.
"""

import argparse
import functools
import json
import math
import multiprocessing
import os
import signal
import sys
import time

import torch

import data
import injection
import models
import over_coll
import tolerance_report
from tolerance_report import ARMS, CAP, STOP, Run, target_of

WORKERS = 4
BY_STEP = ("cnn", "rnn")  # judged by the training loss of every step


def grid(options):
    """The wanted runs, in the order of seeds: those completed before an interruption can be compared."""
    for model in options.models:
        cheap = model not in BY_STEP
        seeds = options.seeds or (6 if cheap else 4 if model == "cnn" else 3)
        rates = options.rates or ((0.1, 0.2, 0.35, 0.5, 0.7) if cheap else (0.2, 0.35, 0.6))
        for variant in models.VARIANTS[model] if options.table4 else ("",):
            for seed in range(1, seeds + 1):
                yield Run(model, variant, options.size, 0.0, "zero", seed)
                for rate in rates:
                    for arm in options.arms or ARMS[:5]:
                        # Models that are slow to train get zero at one rate only, as a check.
                        if cheap or options.full or options.arms or arm in ("count", "feedback") or (
                            arm == "zero" and rate == 0.35
                        ):  # fmt: skip
                            yield Run(model, variant, options.size, rate, arm, seed)


@functools.lru_cache(maxsize=4)
def task_of(model, size, folder, variant):
    return models.task(model, size, folder, variant)


class SmallerStep(injection.Mean):
    def __init__(self, workers, elements, rate):
        super().__init__(workers, elements, 0.0, "zero")
        self.part = 1 - rate

    def __call__(self, contributions):
        return super().__call__(contributions) * self.part


def mean_of(run, elements):
    """How the arm computes the mean of the workers' gradients."""
    arm, _, how = run.arm.partition(", ")
    if arm == "smaller step":
        return SmallerStep(WORKERS, elements, run.rate)
    if how == "weft":
        # A worker's contribution to its own slice is never lost: the rate for the others is higher.
        wire = run.rate * WORKERS / (WORKERS - 1)
        return over_coll.Mean(WORKERS, elements, wire, arm, run.seed, bound=0.95)
    range_ = 1 if how == "each" else injection.RANGE
    return injection.Mean(WORKERS, elements, run.rate, arm, range_, 2000 + run.seed)


class Watch:
    """What is compared with the target, and the points so far: (epoch, loss).

    mf, mlp: the validation loss, every quarter of an epoch. cnn, rnn: the mean training loss of the last n
    steps (n = steps of an epoch), assigned to their middle: assigned to their end, it would lag by a constant
    time, and all ratios would be closer to 1.
    """

    def __init__(self, by_step, steps):
        self.by_step, self.steps = by_step, steps
        self.every = max(1, steps // 40 if by_step else steps // 4)
        self.losses = []
        self.points = []

    def step(self, number, loss, validate):
        """-> the newest point's loss; None = there is none after this step"""
        if self.by_step:
            self.losses = [*self.losses[-self.steps + 1 :], loss]
        if number % self.every or (self.by_step and number < self.steps):
            return None
        if self.by_step:
            when, now = number / self.steps - 0.5, sum(self.losses) / self.steps
        else:
            when, now = number / self.steps, validate()
        self.points.append((round(when, 5), round(now, 6)))
        return now


def simulate(run, folder, target):
    """-> the record of one run. It stops when its loss is at most target; None = after 1.5 x STOP epochs."""
    task = task_of(run.model, run.size, folder, run.variant)
    start = time.process_time()
    torch.manual_seed(run.seed)  # initial model; data order and lost ranges have separate seeds
    order = torch.Generator().manual_seed(1000 + run.seed)
    model = task.make()
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]
    mean = mean_of(run, sum(sizes))
    batch = task.batch * WORKERS
    steps = len(task.train[0]) // batch
    if steps == 0:
        raise data.DataError(f"{len(task.train[0])} rows are less than one step of {batch}")
    watch = Watch(run.model in BY_STEP, steps)
    gradients = torch.zeros(WORKERS, sum(sizes))
    checks = []  # the validation loss after each epoch
    for step in range(int(STOP[run.model] * (1.5 if target is None else CAP) * steps)):
        if step % steps == 0:
            rows = torch.randperm(len(task.train[0]), generator=order)
        loss_sum = 0.0
        for worker in range(WORKERS):
            first = step % steps * batch + worker * task.batch
            part = rows[first : first + task.batch]
            loss = task.loss(model, *(tensor[part] for tensor in task.train))
            model.zero_grad()
            loss.backward()
            torch.cat([p.grad.flatten() for p in parameters], out=gradients[worker])
            loss_sum += loss.item()
        with torch.no_grad():
            for p, g in zip(parameters, mean(gradients).split(sizes)):
                p -= task.rate * g.view_as(p)
        if (step + 1) % steps == 0 and watch.by_step:
            checks.append(((step + 1) // steps, round(validation(task, model), 6)))
        now = watch.step(step + 1, loss_sum / WORKERS, lambda: validation(task, model))
        if now is not None and (not math.isfinite(now) or (target is not None and now <= target)):
            break
    mean.close()
    return {
        "target": target,
        "curve": watch.points,
        "checks": checks,
        "validation": validation(task, model),
        "lost": mean.lost / max(1, mean.sent),  # over_coll: of all elements passed to the library
        "difference": getattr(mean, "difference", 0.0),
        "cpu_s": round(time.process_time() - start, 1),
    }


def validation(task, model):
    model.eval()
    with torch.no_grad():
        total = sum(
            task.loss(model, *part).item() * len(part[0])
            for part in zip(*(tensor.split(256) for tensor in task.validation))
        )
    model.train()
    return total / len(task.validation[0])


def prepare():
    """Initialize a worker process: one thread; the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def work(job):
    run, folder, target = job
    return {**run._asdict(), **simulate(run, folder, target)}


def cut(path):
    """Remove an incomplete last line, which a stopped run may have left."""
    if os.path.exists(path):
        with open(path, "rb+") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def compute(options):
    results = tolerance_report.load(options.results)
    wanted = [run for run in grid(options) if run not in results]
    done, total = len(results), len(results) + len(wanted)
    cut(options.results)
    context = multiprocessing.get_context("spawn")
    with open(options.results, "a", encoding="utf-8") as file, context.Pool(
        options.processes, prepare
    ) as pool:
        for lossless in (True, False):
            jobs = [
                (run, options.data, None if lossless else target_of(results, run))
                for run in wanted
                if (run.rate == 0) == lossless
            ]
            for run, _, target in jobs:
                if target is None and not lossless:
                    raise data.DataError(f"no target for {run.model}: a lossless run is too short, or diverged")
            for one in pool.imap_unordered(work, jobs):
                results[tolerance_report.run_of(one)] = one
                file.write(json.dumps(one) + "\n")
                file.flush()
                done += 1
                print(progress(one, done, total), file=sys.stderr, flush=True)
    return results


def progress(one, done, total):
    epoch, loss = one["curve"][-1] if one["curve"] else (0, math.nan)
    what = " ".join(filter(None, (one["model"], one["variant"], one["arm"] if one["rate"] else "lossless")))
    return (
        f"{done}/{total} {what} p={one['rate']} seed {one['seed']}: {epoch:.2f} epochs, loss {loss:.4f}, "
        f"{one['cpu_s']} s"
    )


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", required=True, metavar="FILE", help="JSON lines; an existing file is continued")
    parser.add_argument("--models", default="mf,mlp,cnn,rnn", help="comma-separated")
    parser.add_argument("--arms", default="", help=f"semicolon-separated; default: {';'.join(ARMS[:5])}; for cnn and "
                        "rnn: count;feedback, and zero at p = .35 only")
    parser.add_argument("--rates", help="p, comma-separated; default: .1,.2,.35,.5,.7; for cnn and rnn: .2,.35,.6")
    parser.add_argument("--seeds", type=int, help="number of seeds; default: 6; for cnn 4, for rnn 3")
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA_DIR", ""), metavar="DIR",
                        help='folder of the data sets, or "tiny" (default: WEFT_DATA_DIR)')
    parser.add_argument("--full", action="store_true", help="the paper's sizes, and p from .05 to .95 by .05")
    parser.add_argument("--table4", action="store_true", help="also train rnn from French to English and cnn on each half of the classes")
    parser.add_argument("--processes", type=int, default=2, help="default: 2, of one thread each")
    parser.add_argument("--interval", choices=("bootstrap", "t"), default="bootstrap",
                        help="how to compute the intervals of the means and of x1 over seeds (default: bootstrap, "
                        "too narrow with few seeds)")
    parser.add_argument("--target-epoch", type=float, metavar="E",
                        help="use the lossless runs' loss at epoch E as the target; default: 5, for mf 3; at most 5, "
                        "for mf 4, at whose loss runs end")
    parser.add_argument("--plot", metavar="FILE", help="epochs over p, as the paper's Fig. 2")
    parser.add_argument("--report", action="store_true", help="print the results so far, run nothing")
    options = parser.parse_args()
    options.models = options.models.split(",")
    options.arms = options.arms.split(";") if options.arms else ()
    for known, given in ((models.NAMES, options.models), (ARMS, options.arms)):
        for name in given:
            if name not in known:
                parser.error(f"{name!r} is none of {', '.join(map(repr, known))}")
    try:
        options.rates = tuple(float(rate) for rate in options.rates.split(",")) if options.rates else ()
    except ValueError:
        parser.error(f"--rates {options.rates}: not a comma-separated list of numbers")
    if not all(0 < rate < 1 for rate in options.rates):
        parser.error("--rates: each is more than 0 and less than 1; the lossless runs are made anyway")
    if any(arm.endswith("weft") for arm in options.arms) and not options.report:
        check_weft(parser, options.rates)
    if options.seeds is not None and options.seeds < 1 or options.processes < 1:
        parser.error("--seeds and --processes are 1 or more")
    if options.target_epoch is not None and options.target_epoch <= 0:
        parser.error("--target-epoch is more than 0")
    if options.full and not options.rates:
        options.rates = tuple(i / 20 for i in range(1, 20))
    options.size = "paper" if options.full else "tiny" if options.data == "tiny" else "small"
    if options.plot:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            parser.error("--plot needs matplotlib: pip install matplotlib")
    return options


def check_weft(parser, rates):
    if not rates or max(rates) > 0.5:
        parser.error("arms over weft need --rates of at most 0.5: at higher loss the ranks cannot connect")
    try:
        import weft.coll  # noqa: F401
    except ImportError as error:
        parser.error(f"arms over weft need its package, pip install . ({error})")


def main():
    options = arguments()
    try:
        results = tolerance_report.load(options.results) if options.report else compute(options)
        tolerance_report.report(results, options)
        if options.plot:
            tolerance_report.plot(results, options)
    except data.DataError as error:
        sys.exit(f"tolerance.py: {error}")
    except KeyboardInterrupt:
        print(f"tolerance.py: stopped; run the same command to continue {options.results}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
