#!/usr/bin/env python3
"""Trains one of four models, alone or with DistributedDataParallel over weft or Gloo.

    python3 train.py --model mlp                                              one process
    torchrun --nproc_per_node 4 train.py --model mlp --backend weft           exact
    torchrun --nproc_per_node 4 train.py --model mlp --backend weft --loss-bound 0.1
                                       up to a tenth of each contribution may be missing; it is added to the
                                       next step
    torchrun --nproc_per_node 4 train.py --model mlp --injected-loss 0.3      loss injected in the program

Models: mf (matrix factorization, MovieLens), mlp (Reuters topics), cnn (ResNet-20, CIFAR-10), rnn (LSTM
that translates English to French). data.py lists their data sets; --data tiny generates small ones.
With --checkpoint the state is written after each epoch, and a later start continues from it.
"""

import argparse
import contextlib
import gc
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import data
import injection
import models


def fraction(text):
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a fraction: 0 or more, less than 1")
    return value


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=models.NAMES, required=True)
    parser.add_argument("--backend", choices=("weft", "gloo"), default="weft", help="default: weft")
    parser.add_argument("--loss-bound", type=fraction, default=0.0, metavar="F",
                        help="weft's hook: this fraction of each contribution may be missing (default: 0)")
    parser.add_argument("--feedback", action=argparse.BooleanOptionalAction, default=True,
                        help="add missing gradients to the next step; else divide by the number that arrived")
    parser.add_argument("--injected-loss", type=fraction, default=0.0, metavar="F",
                        help="lose this fraction on purpose, on any backend")
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA_DIR", ""), metavar="DIR",
                        help='folder of the data sets, or "tiny" (default: WEFT_DATA_DIR)')
    parser.add_argument("--paper", action="store_true", help="the paper's sizes and learning rates")
    parser.add_argument("--epochs", type=positive, help="default: the model's")
    parser.add_argument("--batch", type=positive, help="rows of each process and step; default: the model's")
    parser.add_argument("--learning-rate", type=float, help="default: the model's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", metavar="FILE", help="write it after each epoch, and continue from it")
    parser.add_argument("--plot", metavar="FILE", help="draw the validation loss (.png, .svg, .pdf)")
    options = parser.parse_args()
    if options.loss_bound and options.injected_loss:
        parser.error("--loss-bound and --injected-loss exclude each other; choose one")
    if options.paper and options.data == "tiny":
        parser.error("--paper needs the real data")
    for path in (options.checkpoint, options.plot):
        if path and not os.path.isdir(os.path.dirname(path) or "."):
            parser.error(f"the folder of {path} does not exist; create it")
    if options.plot:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            parser.error("--plot needs matplotlib: pip install matplotlib")
    return options


class Training:
    """A task on this process, one of `ranks`."""

    def __init__(self, task, options, rank, ranks):
        self.task, self.options, self.rank, self.ranks = task, options, rank, ranks
        self.batch = options.batch or task.batch
        self.epoch = 0
        self.losses = []  # validation loss after each epoch
        self.steps = len(task.train[0]) // (self.batch * ranks)
        if self.steps == 0:
            raise data.DataError(
                f"{len(task.train[0])} rows are less than one batch of {self.batch} for each of {ranks} "
                "processes; give a smaller --batch"
            )
        torch.manual_seed(options.seed)  # the same model everywhere
        self.module = task.make()
        self.hook_state = None
        rate = options.learning_rate or task.rate
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=rate)
        if options.checkpoint and os.path.exists(options.checkpoint):
            self.load(options.checkpoint)
        if ranks > 1 and options.checkpoint:
            self.compare()
        self.model = self.module if ranks == 1 else self.distributed()

    def compare(self):
        """All ranks have to continue after the same epoch."""
        epochs = [torch.zeros(1, dtype=torch.int64) for _ in range(self.ranks)]
        dist.all_gather(epochs, torch.tensor([self.epoch]))
        for rank, epoch in enumerate(epochs):
            if epoch != epochs[0]:
                raise data.DataError(
                    f"rank {rank} continues after epoch {epoch.item()}, and rank 0 after {epochs[0].item()}; "
                    f"give all ranks the same {self.options.checkpoint}"
                )

    def distributed(self):
        model, options = DistributedDataParallel(self.module), self.options
        if options.loss_bound:
            import weft.torch

            self.hook_state = weft.torch.HookState(bound=options.loss_bound, feedback=options.feedback)
            model.register_comm_hook(self.hook_state, weft.torch.allreduce_hook)
        elif options.injected_loss:
            self.hook_state = injection.HookState(
                options.injected_loss, options.feedback, self.rank, self.ranks
            )
            model.register_comm_hook(self.hook_state, injection.hook)
        return model

    def run(self):
        epochs = self.options.epochs or self.task.epochs
        while self.epoch < epochs:
            start = time.monotonic()
            trained = self.train_epoch()
            self.epoch += 1
            self.losses.append(self.validate())
            if self.options.checkpoint and self.rank == 0:
                self.save(self.options.checkpoint)
            if self.rank == 0:
                print(
                    f"epoch {self.epoch}/{epochs}  training loss {trained:.4f}  validation loss "
                    f"{self.losses[-1]:.4f}  {time.monotonic() - start:.1f} s{self.missing()}",
                    flush=True,
                )

    def train_epoch(self):
        self.model.train()
        # All ranks draw the same order, and each takes its own part of every batch.
        order = torch.randperm(
            len(self.task.train[0]),
            generator=torch.Generator().manual_seed(self.options.seed * 1000 + self.epoch),
        )
        total = torch.zeros(1)
        for step in self.progress(range(self.steps)):
            first = (step * self.ranks + self.rank) * self.batch
            rows = order[first : first + self.batch]
            loss = self.task.loss(self.model, *(tensor[rows] for tensor in self.task.train))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return self.mean(total / self.steps).item()

    def progress(self, steps):
        if self.rank != 0 or not sys.stderr.isatty():
            return steps
        try:
            from tqdm import tqdm
        except ImportError:
            return steps
        return tqdm(steps, desc=f"epoch {self.epoch + 1}", leave=False)

    def validate(self):
        """The mean over all validation rows, of which each rank computes its share."""
        self.module.eval()
        rows = [tensor[self.rank :: self.ranks] for tensor in self.task.validation]
        sums = torch.zeros(2)
        with torch.no_grad():
            for part in zip(*(tensor.split(256) for tensor in rows)):
                count = len(part[0])
                sums += torch.tensor([self.task.loss(self.module, *part).item() * count, count])
        if self.ranks > 1:
            dist.all_reduce(sums)
        return (sums[0] / sums[1]).item()

    def mean(self, value):
        if self.ranks > 1:
            dist.all_reduce(value)
        return value / self.ranks

    def missing(self):
        state = self.hook_state
        if state is None:
            return ""
        lost, sent = getattr(state, "lost", None), getattr(state, "sent", None)
        if lost is None:
            lost, sent = state.elements_missing, state.elements_sent
        return f"  missing {lost / max(sent, 1):.2%}"

    def save(self, path):
        """The old file is replaced only when the new one is complete."""
        with open(path + ".tmp", "wb") as file:
            torch.save(
                {
                    "task": self.task.name,
                    "epoch": self.epoch,
                    "losses": self.losses,
                    "model": self.module.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)

    def load(self, path):
        try:
            state = torch.load(path, map_location="cpu")
            if state["task"] != self.task.name:
                raise data.DataError(f"{path} is a checkpoint of {state['task']}; name another file")
            self.module.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except data.DataError:
            raise
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise data.DataError(
                f"{path} is not a checkpoint of this model and size ({first}); remove it to start from scratch"
            ) from None
        self.epoch, self.losses = state["epoch"], state["losses"]
        if self.rank == 0:
            print(f"continuing after epoch {self.epoch} of {path}", flush=True)


def plot(losses, options):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.plot(range(1, len(losses) + 1), losses, marker=".")
    pyplot.xlabel("epoch")
    pyplot.ylabel("validation loss")
    pyplot.title(options.model)
    pyplot.savefig(options.plot)


def main():
    options = arguments()
    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if ranks == 1 and (options.loss_bound or options.injected_loss):
        sys.exit("train.py: a single process sends nothing, so nothing is lost; start several with torchrun")
    torch.set_num_threads(max(1, torch.get_num_threads() // ranks))
    training = None
    try:
        size = "paper" if options.paper else "tiny" if options.data == "tiny" else "small"
        task = models.task(options.model, size, options.data)
        if ranks > 1:
            with contextlib.suppress(ImportError):
                import weft.torch  # noqa: F401  PyTorch before 2.5 does not find the backend by itself
            dist.init_process_group(options.backend)
        training = Training(task, options, rank, ranks)
        training.run()
        if options.plot and rank == 0:
            plot(training.losses, options)
        if ranks > 1:
            # The wrapper holds the group. If it still existed at exit, Gloo's threads would end after the
            # interpreter, and a thread that then releases a Python object aborts the process.
            training.model = training.module
            gc.collect()
            dist.destroy_process_group()
    except data.DataError as error:
        sys.exit(f"train.py: {error}")
    except KeyboardInterrupt:
        kept = options.checkpoint and training is not None and training.epoch > 0
        if rank == 0:
            print(
                f"train.py: stopped; {options.checkpoint} has epoch {training.epoch}, run the same command to continue"
                if kept
                else "train.py: stopped; without --checkpoint nothing was saved",
                file=sys.stderr,
            )
        os._exit(130)  # other ranks may be gone: leaving a group in order would wait for them


if __name__ == "__main__":
    main()
