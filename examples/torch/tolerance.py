#!/usr/bin/env python3
"""How much loss does a model tolerate? Epochs to the loss that training without loss reaches.

    python3 tolerance.py --results tolerance.jsonl                   all four, reduced: about 25 minutes
    python3 tolerance.py --results full.jsonl --full --processes 16  the paper's sizes: days
    python3 tolerance.py --results tolerance.jsonl --report          what is there by now

Four workers are simulated in one process. Each step, ranges of 352 gradients (a packet) of each worker
are lost with probability p, and the mean is made in one of three ways:

    zero      what is lost counts as 0: divided by the number of workers (the paper's)
    count     divided by the contributions that came
    feedback  divided by the workers; what was lost is added to the worker's next step (weft's default)

"zero, each" is the first with single gradients instead of ranges. The target is the mean loss of the
lossless runs at a fixed epoch: validation loss of mf and mlp, every quarter of an epoch; a moving mean of
the training loss of cnn and rnn. A run ends when it reaches it, or at three times as many epochs. Of each seed the
ratio to its own lossless run is taken. x1 is the largest p up to which the mean ratio is at most 1.10, by
the upper end of its 95 % interval (bootstrap over seeds); x2 the largest at which all seeds arrive.

Each run is a line of --results, written when it ends: after Ctrl-C the same command goes on.
"""

import argparse
import collections
import json
import math
import multiprocessing
import os
import random
import sys

import torch

import data
import injection
import models

WORKERS = 4
MARGIN = 1.10
CAP = 3
PAPER = {"mf": 0.35, "mlp": 0.15, "cnn": 0.15, "rnn": 0.10}  # [apnet19], Table 3
EPOCH = {"mf": 4, "mlp": 5, "cnn": 5, "rnn": 5}  # of the target
ARMS = ("zero", "count", "feedback", "zero, each")

Run = collections.namedtuple("Run", "model variant size rate arm seed")


def grid(options):
    """The runs that are wanted, the lossless ones of a model first."""
    for model in options.models:
        cheap = model in ("mf", "mlp")
        seeds = options.seeds or (6 if cheap else 3)
        rates = options.rates or ((0.1, 0.2, 0.35, 0.5, 0.7) if cheap else (0.2, 0.35, 0.6))
        for variant in models.VARIANTS[model] if options.table4 else ("",):
            for rate in (0.0, *rates):
                for arm in options.arms if rate > 0 else ("zero",):
                    for seed in range(1, seeds + 1):
                        yield Run(model, variant, options.size, rate, arm, seed)


class Curve:
    """Loss by epoch, and the first time that it is not above a target."""

    def __init__(self, points=()):
        self.points = list(points)

    def reached(self, target):
        """-> epochs, between two points by a straight line; None = not reached"""
        before = None
        for epoch, loss in self.points:
            if loss <= target:
                if before is None or before[1] <= loss:
                    return epoch
                part = (before[1] - target) / (before[1] - loss)
                return before[0] + part * (epoch - before[0])
            before = (epoch, loss)
        return None

    def at(self, epoch):
        return next((loss for when, loss in self.points if when >= epoch - 1e-9), None)


def simulate(run, folder, target):
    """-> the Curve of one run. target: where it may end; None = it goes on for 1.5 of the target's epochs"""
    task = models.task(run.model, run.size, folder, run.variant)
    torch.manual_seed(run.seed)
    model = task.make()
    parameters = list(model.parameters())
    by_step = run.model in ("cnn", "rnn")  # the moving mean of the training loss
    range_ = 1 if run.arm.endswith("each") else injection.RANGE
    mean = injection.Mean(
        WORKERS, sum(p.numel() for p in parameters), run.rate, run.arm.split(",")[0], range_, run.seed
    )
    batch = task.batch * WORKERS
    steps = len(task.train[0]) // batch
    if steps == 0:
        raise data.DataError(f"{len(task.train[0])} rows are less than one step of {batch}")
    order = torch.Generator().manual_seed(run.seed)
    epochs = EPOCH[run.model] * (1.5 if target is None else CAP)
    every = 1 if by_step else max(1, steps // 4)
    points, moving = [], None
    gradients = torch.zeros(WORKERS, mean.residual.shape[1])
    for step in range(int(epochs * steps)):
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
            for p, g in zip(parameters, mean(gradients).split([p.numel() for p in parameters])):
                p -= task.rate * g.view_as(p)
        moving = loss_sum / WORKERS if moving is None else 0.98 * moving + 0.02 * loss_sum / WORKERS
        if (step + 1) % every == 0:
            now = moving if by_step else validation(task, model)
            points.append(((step + 1) / steps, now))
            if not math.isfinite(now) or (target is not None and now <= target):
                break
    return Curve(points), validation(task, model)


def validation(task, model):
    model.eval()
    with torch.no_grad():
        total = sum(
            task.loss(model, *part).item() * len(part[0])
            for part in zip(*(tensor.split(256) for tensor in task.validation))
        )
    model.train()
    return total / len(task.validation[0])


def work(job):
    run, folder, target = job
    torch.set_num_threads(1)
    curve, final = simulate(run, folder, target)
    kept = curve.points[:: max(1, len(curve.points) // 200)]
    kept += curve.points[-1:] if kept[-1] != curve.points[-1] else []
    return {**run._asdict(), "target": target, "curve": kept, "validation": final}


def load(path):
    """The runs that are done. A last line that a stop cut short is left out."""
    results = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    break
                try:
                    one = json.loads(line)
                    results[Run(*(one[name] for name in Run._fields))] = one
                except (ValueError, KeyError, TypeError):
                    raise data.DataError(
                        f"{path}:{number} is not a result of this program; name another file"
                    ) from None
    return results


def target_of(results, run):
    """The mean loss of the lossless runs at the target's epoch; None = not all are there."""
    losses = [
        Curve(one["curve"]).at(EPOCH[run.model])
        for done, one in results.items()
        if done.rate == 0 and done[:3] == run[:3]
    ]
    return sum(losses) / len(losses) if losses and None not in losses else None


def compute(options):
    results = load(options.results)
    wanted = [run for run in grid(options) if run not in results]
    done, total = len(results), len(results) + len(wanted)
    # A partial line of a run that was stopped would spoil the next one.
    if os.path.exists(options.results):
        with open(options.results, "rb+") as file:
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
    with open(options.results, "a", encoding="utf-8") as file, multiprocessing.get_context(
        "spawn"
    ).Pool(options.processes) as pool:
        for lossless in (True, False):
            jobs = [
                (run, options.data, None if lossless else target_of(results, run))
                for run in wanted
                if (run.rate == 0) == lossless
            ]
            for one in pool.imap_unordered(work, jobs):
                results[Run(*(one[name] for name in Run._fields))] = one
                file.write(json.dumps(one) + "\n")
                file.flush()
                done += 1
                print(
                    f"{done}/{total} {one['model']} {one['variant']} {one['arm']} p={one['rate']} seed "
                    f"{one['seed']}: {one['curve'][-1][0]:.1f} epochs, loss {one['curve'][-1][1]:.4f}",
                    file=sys.stderr,
                )
    return results


# ---- what comes of it ----


def ratios(results, model, variant, size, arm, rate):
    """By seed: epochs over those of the lossless run; None = did not arrive."""
    found = []
    for run, one in results.items():
        if (run.model, run.variant, run.size, run.arm, run.rate) != (model, variant, size, arm, rate):
            continue
        base = results.get(run._replace(rate=0.0, arm="zero"))
        if base is None:
            continue
        target = target_of(results, run)
        own, other = Curve(one["curve"]).reached(target), Curve(base["curve"]).reached(target)
        if other is not None:  # a lossless run that is late itself tells nothing
            found.append(None if own is None else own / other)
    return found


def interval(values, draws=2000):
    """(geometric mean, lower and upper end of the 95 % interval by bootstrap over the values)"""
    logs = [math.log(value) for value in values]
    picks = random.Random(1)
    means = sorted(sum(picks.choices(logs, k=len(logs))) / len(logs) for _ in range(draws))
    middle = sum(logs) / len(logs)
    return tuple(
        math.exp(x) for x in (middle, means[int(0.025 * draws)], means[int(0.975 * draws)])
    )


def bounds(results, model, variant, size, arm):
    """(x1, x2)"""
    rates = sorted({run.rate for run in results if run[:3] == (model, variant, size) and run.rate > 0})
    x = [0.0, 0.0]
    still = [True, True]
    for rate in rates:
        found = ratios(results, model, variant, size, arm, rate)
        if not found:
            continue
        arrived = None not in found
        still[0] = still[0] and arrived and interval(found)[2] <= MARGIN
        still[1] = still[1] and arrived
        x = [rate if still[i] else x[i] for i in range(2)]
    return tuple(x)


def report(results, options):
    size = options.size
    for model in options.models:
        for variant in models.VARIANTS[model]:
            mine = [run for run in results if run[:3] == (model, variant, size)]
            if not any(run.rate > 0 for run in mine):
                continue
            target = target_of(results, mine[0])
            if target is None:
                continue
            print(f"\n{model}{' ' + variant if variant else ''}: epochs to a loss of {target:.4f} over those "
                  f"without loss (95 % interval; seeds that arrived)")
            print("      p  " + "".join(f"{arm:>26}" for arm in ARMS))
            for rate in sorted({run.rate for run in mine if run.rate > 0}):
                cells = []
                for arm in ARMS:
                    found = ratios(results, model, variant, size, arm, rate)
                    there = [ratio for ratio in found if ratio is not None]
                    cell = f"{len(there)}/{len(found)}"
                    if there:
                        cell = "{:.2f} ({:.2f}-{:.2f}) ".format(*interval(there)) + cell
                    cells.append(cell if found else "")
                print(f"  {rate:5.2f}  " + "".join(f"{cell:>26}" for cell in cells))
    print("\nTolerated loss, x1 / x2 (of the rates that were tried); the paper's x1, its Table 3")
    print("  model            " + "".join(f"{arm:>14}" for arm in ARMS) + f"{'paper':>10}")
    for model in options.models:
        for variant in models.VARIANTS[model]:
            if not any(run[:3] == (model, variant, size) and run.rate > 0 for run in results):
                continue
            cells = []
            for arm in ARMS:
                has = any(run[:3] == (model, variant, size) and run.arm == arm and run.rate > 0 for run in results)
                cells.append("{:.2f} / {:.2f}".format(*bounds(results, model, variant, size, arm)) if has else "")
            print(f"  {model + ' ' + variant:17}" + "".join(f"{cell:>14}" for cell in cells)
                  + f"{PAPER[model]:>10.2f}")


def plot(results, options):
    """As the paper's Fig. 2: epochs over p."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(options.models), figsize=(4 * len(options.models), 3.5), squeeze=False)
    for axis, model in zip(axes[0], options.models):
        for arm in ARMS:
            rates = sorted({run.rate for run in results if run.model == model and run.arm == arm and run.rate > 0})
            points = []
            for rate in rates:
                there = [r for r in ratios(results, model, "", options.size, arm, rate) if r is not None]
                if there:
                    points.append((rate, *interval(there)))
            if points:
                x, middle, low, high = zip(*[(0, 1, 1, 1), *points])
                axis.plot(x, middle, marker=".", label=arm)
                axis.fill_between(x, low, high, alpha=0.15)
        axis.axvline(PAPER[model], color="grey", linestyle=":")
        axis.set(title=model, xlabel="loss p", ylabel="epochs / lossless")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(options.plot)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", required=True, metavar="FILE", help="JSON lines, gone on with")
    parser.add_argument("--models", default="mf,mlp,cnn,rnn", help="comma between")
    parser.add_argument("--arms", default=";".join(ARMS), help='semicolon between (default: "%(default)s")')
    parser.add_argument("--rates", help="p, comma between; default: .1,.2,.35,.5,.7, of cnn and rnn .2,.35,.6")
    parser.add_argument("--seeds", type=int, help="default: 6, of cnn and rnn 3")
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA_DIR", ""), metavar="DIR",
                        help='folder of the data sets, or "tiny" (default: WEFT_DATA_DIR)')
    parser.add_argument("--full", action="store_true", help="the paper's sizes, and p from .05 to .95 by .05")
    parser.add_argument("--table4", action="store_true", help="French to English, halves of the classes, too")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--plot", metavar="FILE", help="epochs over p, as the paper's Fig. 2")
    parser.add_argument("--report", action="store_true", help="print what is there, run nothing")
    options = parser.parse_args()
    options.models = options.models.split(",")
    options.arms = options.arms.split(";")
    for known, given in ((models.NAMES, options.models), (ARMS, options.arms)):
        for name in given:
            if name not in known:
                parser.error(f"{name!r} is none of {', '.join(map(repr, known))}")
    try:
        options.rates = tuple(float(rate) for rate in options.rates.split(",")) if options.rates else ()
    except ValueError:
        parser.error(f"--rates {options.rates}: numbers, comma between")
    if not all(0 < rate < 1 for rate in options.rates):
        parser.error("--rates: each is more than 0 and less than 1; the lossless runs are made anyway")
    if options.seeds is not None and options.seeds < 1 or options.processes < 1:
        parser.error("--seeds and --processes are 1 or more")
    if options.full and not options.rates:
        options.rates = tuple(i / 20 for i in range(1, 20))
    options.size = "paper" if options.full else "tiny" if options.data == "tiny" else "small"
    if options.plot:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            parser.error("--plot needs matplotlib: pip install matplotlib")
    return options


def main():
    options = arguments()
    try:
        results = load(options.results) if options.report else compute(options)
        report(results, options)
        if options.plot:
            plot(results, options)
    except data.DataError as error:
        sys.exit(f"tolerance.py: {error}")
    except KeyboardInterrupt:
        print(f"tolerance.py: stopped; the same command goes on with {options.results}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
