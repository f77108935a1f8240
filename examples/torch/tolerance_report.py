"""Evaluates the runs of tolerance.py: ratios of epochs with their spread, x1 and x2, tables, a figure.

Its only input is the file of results, from which the figures in docs/TOLERANCE.md are computed.
"""

import collections
import json
import math
import os
import random

import data
import models

MARGIN = 1.10
CAP = 3
# Runs end at the loss that the lossless runs have at this epoch.
STOP = {"mf": 4, "mlp": 5, "cnn": 5, "rnn": 5}
# Runs are compared by the time at which they reach the loss of the lossless runs at this epoch. The
# validation loss of mf has its minimum at about the fifth epoch; near a minimum, the epoch at which
# a loss is reached is mostly random.
JUDGED = {**STOP, "mf": 3}
ARMS = ("zero", "count", "feedback", "zero, each", "smaller step", "count, weft", "feedback, weft")
# [apnet19], Tables 3 and 4; the paper does not name the two data sets of Table 4
PAPER = {"mf": 0.35, "mlp": 0.15, "cnn": 0.15, "rnn": 0.10}
PAPER4 = {("rnn", ""): 0.10, ("rnn", "reverse"): 0.15, ("cnn", "first"): 0.15, ("cnn", "second"): 0.15}
STUDENT = (math.nan, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, by n - 1

Run = collections.namedtuple("Run", "model variant size rate arm seed")


def run_of(one):
    return Run(*(one[name] for name in Run._fields))


def load(path):
    """The completed runs. An incomplete last line is ignored."""
    results = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    break
                try:
                    one = json.loads(line)
                    results[run_of(one)] = one
                except (ValueError, KeyError, TypeError):
                    raise data.DataError(
                        f"{path}:{number} is not a result of this program; name another file"
                    ) from None
    return results


# ---- one curve ----


def reached(curve, target):
    """-> the epoch at which the loss first is at most the target, interpolated linearly, or None"""
    before = None
    for epoch, loss in curve:
        if loss <= target:
            if before is None or before[1] <= loss:
                return epoch
            part = (before[1] - target) / (before[1] - loss)
            return before[0] + part * (epoch - before[0])
        before = (epoch, loss)
    return None


def at(curve, epoch):
    """The value at an epoch, interpolated linearly; None = the curve does not cover the epoch."""
    before = None
    for when, value in curve:
        if when >= epoch - 1e-9:
            if when <= epoch + 1e-9:
                return value
            if before is None:
                return None
            return before[1] + (value - before[1]) * (epoch - before[0]) / (when - before[0])
        before = (when, value)
    return None


def target_of(results, run, epoch=None):
    """The loss at which runs end or, with an epoch, the one by which they are judged; None = not known yet.

    It is the mean loss of the lossless runs at that epoch. Once a run with lost
    gradients has ended at a target, that target does not change when more seeds follow.
    """
    mine = [one for done, one in results.items() if done[:3] == run[:3]]
    fixed = {one["target"] for one in mine if one["target"] is not None}
    if len(fixed) > 1:
        raise data.DataError(f"the runs of {run.model} have {len(fixed)} targets; begin another --results")
    if fixed and epoch in (None, STOP[run.model]):
        return fixed.pop()
    losses = [at(one["curve"], epoch or STOP[run.model]) for one in mine if one["rate"] == 0]
    return sum(losses) / len(losses) if losses and None not in losses else None


# ---- many ----


class Study:
    """The runs of one size, judged by the loss at `epoch`, or None = at the model's in JUDGED."""

    def __init__(self, results, size, epoch=None, kind="bootstrap"):
        self.results = {run: one for run, one in results.items() if run.size == size}
        self.size, self.epoch, self.kind = size, epoch, kind

    def epoch_of(self, model):
        return min(self.epoch or JUDGED[model], STOP[model])

    def target(self, model, variant):
        return target_of(self.results, Run(model, variant, self.size, 0.0, "zero", 1), self.epoch_of(model))

    def arrival(self, one):
        """The epoch at which a run reached the target; None = not within CAP times its epoch"""
        when = reached(one["curve"], self.target(one["model"], one["variant"]))
        return when if when is not None and when <= CAP * self.epoch_of(one["model"]) else None

    def pairs(self, model, variant, arm, rate):
        """[(result of the run, of its lossless run, ratio or None = did not arrive)], by seed

        A lossless run that does not arrive itself has no pair; print_epochs says how many did.
        """
        found = []
        for run in sorted(self.results):
            base = self.results.get(run._replace(rate=0.0, arm="zero"))
            if (run.model, run.variant, run.arm, run.rate) == (model, variant, arm, rate) and base:
                own, other = self.arrival(self.results[run]), self.arrival(base)
                if other is not None:
                    found.append((self.results[run], base, None if own is None else own / other))
        return found

    def ratios(self, model, variant, arm, rate):
        return [ratio for _, _, ratio in self.pairs(model, variant, arm, rate)]

    def rates(self, model, variant, arm=None):
        return sorted(
            {r.rate for r in self.results if r[:2] == (model, variant) and r.rate > 0 and arm in (None, r.arm)}
        )

    def arms(self, model, variant):
        return [arm for arm in ARMS if self.rates(model, variant, arm)]

    def bounds(self, model, variant, arm):
        """(x1, x2): the largest rate that was tried, so that at it and all lower ones every seed
        arrived (x2), and also the upper end of the interval of the ratios is at most MARGIN (x1).

        None = no rate was tried with two seeds.
        """
        x = [0.0, 0.0]
        still = [True, True]
        tried = [(rate, self.ratios(model, variant, arm, rate)) for rate in self.rates(model, variant, arm)]
        tried = [(rate, found) for rate, found in tried if len(found) > 1]
        for rate, found in tried:
            arrived = None not in found
            still[0] = still[0] and arrived and interval(found, self.kind)[2] <= MARGIN
            still[1] = still[1] and arrived
            x = [rate if still[i] else x[i] for i in range(2)]
        return tuple(x) if tried else None

    def shares(self, model, variant, arms):
        """{source: share of the sum of squares of the log ratios}: a two-way analysis of variance.

        A run that did not arrive counts as CAP. None = not all the arms have the same rates and seeds.
        """
        rates = self.rates(model, variant, arms[0])
        cells = {
            (arm, rate): [math.log(CAP if ratio is None else ratio) for ratio in self.ratios(model, variant, arm, rate)]
            for arm in arms
            for rate in rates
        }
        same = all(self.rates(model, variant, arm) == rates for arm in arms)
        if not same or len(rates) < 2 or len({len(cell) for cell in cells.values()}) != 1:
            return None
        values = [x for cell in cells.values() for x in cell]
        whole = sum(values) / len(values)

        def squares(groups):
            return sum(len(g) * (sum(g) / len(g) - whole) ** 2 for g in groups)

        of_arm = squares([[x for r in rates for x in cells[arm, r]] for arm in arms])
        of_rate = squares([[x for arm in arms for x in cells[arm, r]] for r in rates])
        of_cell = squares(list(cells.values()))
        total = squares([[x] for x in values])
        parts = {"arm": of_arm, "p": of_rate, "arm with p": of_cell - of_arm - of_rate, "rest (seeds)": total - of_cell}
        return {source: max(0.0, part / total) for source, part in parts.items()} if total else None

    def models(self, names):
        """(model, variant) of which there are runs with loss, and a target"""
        for model in names:
            for variant in models.VARIANTS[model]:
                if self.rates(model, variant) and self.target(model, variant) is not None:
                    yield model, variant


def interval(values, kind="bootstrap", draws=2000):
    """(geometric mean, lower and upper end of its 95 % interval)

    None counts as CAP, so the mean is too low then.
    """
    logs = [math.log(CAP if value is None else value) for value in values]
    n, middle = len(logs), sum(logs) / len(logs)
    if n == 1:
        return (math.exp(middle), 0.0, math.inf)
    if kind == "t":
        half = STUDENT[min(n - 1, len(STUDENT) - 1)]
        half *= math.sqrt(sum((x - middle) ** 2 for x in logs) / (n - 1) / n)
        ends = (middle - half, middle + half)
    else:
        picks = random.Random(1)
        means = sorted(sum(picks.choices(logs, k=n)) / n for _ in range(draws))
        ends = (means[int(0.025 * draws)], means[int(0.975 * draws)])
    return tuple(math.exp(x) for x in (middle, *ends))


# ---- tables ----


def named(model, variant):
    return f"{model} {variant}".strip()


def cell(study, found):
    if not found:
        return ""
    arrived = len(found) - found.count(None)
    count = f"{arrived}/{len(found)}"
    if not arrived:
        return count
    middle, low, high = interval(found, study.kind)
    spread = f" ({low:.2f}-{high:.2f})" if len(found) > 1 else ""
    return f"{'>' if arrived < len(found) else ''}{middle:.2f}{spread} {count}"


def print_epochs(study, model, variant):
    lossless = [
        study.arrival(one)
        for run, one in study.results.items()
        if run[:2] == (model, variant) and run.rate == 0
    ]
    there = [when for when in lossless if when is not None]
    spread = f"{min(there):.2f} to {max(there):.2f} epochs, " if there else ""
    arms = study.arms(model, variant)
    print(f"\n{named(model, variant)}: epochs to a loss of {study.target(model, variant):.4f} over those without loss "
          f"({spread}{len(there)} of {len(lossless)} seeds): mean (95 % interval) seeds that arrived")
    print("      p  " + "".join(f"{arm:>23}" for arm in arms))
    for rate in study.rates(model, variant):
        row = [cell(study, study.ratios(model, variant, arm, rate)) for arm in arms]
        print(f"  {rate:5.2f}  " + "".join(f"{text:>23}" for text in row))


def print_bounds(study, names):
    print(f"\nTolerated loss, x1 / x2 of the rates that were tried ({study.kind}), and the paper's x1 (Tables 3, 4)")
    shown = ARMS[:5]
    print("  model            " + "".join(f"{arm:>14}" for arm in shown) + f"{'paper':>10}")
    for model, variant in study.models(names):
        found = [study.bounds(model, variant, arm) for arm in shown]
        row = ["{:.2f} / {:.2f}".format(*x) if x else "" for x in found]
        paper = PAPER4.get((model, variant), PAPER[model])
        print(f"  {named(model, variant) + ' ':17}" + "".join(f"{text:>14}" for text in row) + f"{paper:>10.2f}")


def share_lines(study, names):
    for model, variant in study.models(names):
        for arms in (ARMS[:3], ARMS[1:3]):
            found = study.shares(model, variant, arms)
            if found:
                parts = (f"{source} {100 * part:.0f} %" for source, part in found.items())
                yield f"{named(model, variant)}, {', '.join(arms)}: {', '.join(parts)}"


def validation_lines(study, names):
    """For models judged by their training loss: the effect of packet loss on the validation loss."""
    for model, variant in study.models(names):
        target = target_of(study.results, Run(model, variant, study.size, 0.0, "zero", 1))
        for arm in study.arms(model, variant):
            for rate in study.rates(model, variant, arm):
                found = []
                for one, base, _ in study.pairs(model, variant, arm, rate):
                    when = reached(base["curve"], target)
                    # A point of a curve is at the middle of the epoch that it averages, so both
                    # losses are those half an epoch after the curve is at the target.
                    other = None if when is None else at(base.get("checks", ()), when + 0.5)
                    if reached(one["curve"], target) is not None and other is not None:
                        found.append(one["validation"] / other)
                if found:
                    yield (f"{named(model, variant)} {arm} p={rate}: {sum(found) / len(found):.3f} "
                           f"({min(found):.3f}-{max(found):.3f}), {len(found)} seeds")


def weft_lines(study, names):
    for model, variant in study.models(names):
        for arm in ARMS[5:]:
            for rate in study.rates(model, variant, arm):
                lines = [one for one, _, _ in study.pairs(model, variant, arm, rate)]
                lost = [one["lost"] for one in lines]
                text = f"{named(model, variant)} {arm} p={rate}: missing {min(lost):.4f} to {max(lost):.4f}"
                if arm.startswith("feedback"):
                    text += f", difference {max(one['difference'] for one in lines):.1e} of the largest"
                yield text


SECTIONS = (
    ("What the logarithm of the ratio depends on: shares of its sum of squares", share_lines),
    ("Validation loss where a run ended over that of its lossless run where it did: mean (least-most)",
     validation_lines),
    ("Over weft.coll: what was missing, and the largest difference from injection.py with the same losses",
     weft_lines),
)  # fmt: skip


def report(results, options):
    study = Study(results, options.size, options.target_epoch, options.interval)
    for model, variant in study.models(options.models):
        print_epochs(study, model, variant)
    print_bounds(study, options.models)
    for title, lines_of in SECTIONS:
        lines = list(lines_of(study, options.models))
        if lines:
            print("\n" + "\n  ".join((title, *lines)))


def plot(results, options):
    """As the paper's Fig. 2 (c) and (d): epochs over p, for each model and arm. A cross: some did not arrive."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    study = Study(results, options.size, options.target_epoch, options.interval)
    names = [model for model, variant in study.models(options.models) if variant == ""]
    rows, columns = -(-len(names) // 2), min(2, len(names))
    if not names:
        raise data.DataError("there is nothing to draw yet")
    figure, axes = pyplot.subplots(rows, columns, figsize=(4.5 * columns, 3.3 * rows), squeeze=False)
    for axis, model in zip(axes.flat, names):
        for number, arm in enumerate(ARMS[:5]):
            points = [(0, 1, 1, 1)]
            for rate in study.rates(model, "", arm):
                found = study.ratios(model, "", arm, rate)
                if found:
                    points.append((rate, *interval(found, study.kind)))
                if None in found:
                    axis.plot(rate, points[-1][1], marker="x", color=f"C{number}", markersize=9)
            if len(points) > 1:
                x, middle, low, high = zip(*points)
                axis.plot(x, middle, marker=".", label=arm, color=f"C{number}")
                axis.fill_between(x, low, high, alpha=0.15, color=f"C{number}")
        axis.axvline(PAPER[model], color="grey", linestyle=":", label="the paper's x1")
        axis.axhline(MARGIN, color="grey", linewidth=0.5)
        axis.set(title=model, xlabel="loss p", ylabel="epochs / lossless")
    for axis in axes.flat[len(names):]:
        axis.set_visible(False)
    axes[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(options.plot, dpi=100)
