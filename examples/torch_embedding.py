"""A recommendation model: its embeddings are stored on weft's parameter server, and its dense part is
trained by DistributedDataParallel over weft.

    weft keygen job.key; export WEFT_KEY_FILE=job.key WEFT_SERVERS=127.0.0.1:7700
    weft server --key-file job.key --port 7700 --workers 2 &
    torchrun --nproc_per_node 2 torch_embedding.py --data ratings.csv

ratings.csv is that of MovieLens (userId,movieId,rating,timestamp), or ratings.csv.zst; a rating of 4 or
more is a like. Without --data, likes are generated.
"""

import argparse
import os
import subprocess

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import weft
import weft.torch


class Net(nn.Module):
    """Computes the log-odds of a like from a user's row, an item's row and their product."""

    def __init__(self, rows, dim):
        super().__init__()
        self.rows = rows
        self.top = nn.Sequential(nn.Linear(3 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids):
        user, item = self.rows(ids).unbind(1)
        return self.top(torch.cat((user, item, user * item), 1)).squeeze(1)


def read_ratings(path):
    """-> users, items, likes; with the ids of the file."""
    if path.endswith(".zst"):
        text = subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True, text=True).stdout
        lines = text.splitlines()
    else:
        with open(path) as file:
            lines = file.read().splitlines()
    table = np.array([line.split(",")[:3] for line in lines[1:]], dtype=np.float64)
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2] >= 4


def make_ratings(n=12_000, users=200, items=100):
    """Likes from the product of three random factors of user and item; 5 % are inverted."""
    rng = np.random.default_rng(7)
    user, item = rng.integers(users, size=n), rng.integers(items, size=n)
    tastes, kinds = rng.normal(size=(users, 3)), rng.normal(size=(items, 3))
    likes = (tastes[user] * kinds[item]).sum(1) > 0
    return user, item, likes ^ (rng.random(n) < 0.05)


def load(path):
    """-> ids (n, 2), labels (n,), number of ids. One table has both: items follow users."""
    user, item, likes = read_ratings(path) if path else make_ratings()
    users = int(user.max()) + 1
    order = np.random.default_rng(1).permutation(len(user))
    ids = torch.from_numpy(np.stack((user, users + item), 1)[order])
    return ids, torch.from_numpy(likes[order].astype(np.float32)), users + int(item.max()) + 1


def train_epoch(model, rows, optimizer, ids, labels, batch):
    """-> mean loss. All ranks have the same number of batches."""
    total, steps = 0.0, len(ids) // batch
    for step in range(steps):
        here = slice(step * batch, (step + 1) * batch)
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids[here]), labels[here])
        optimizer.zero_grad()
        loss.backward()
        rows.step()
        if step + 1 < steps:
            rows.prefetch(ids[(step + 1) * batch : (step + 2) * batch])  # while the dense part steps
        optimizer.step()
        total += loss.item()
    return total / steps


def accuracy(model, ids, labels):
    with torch.no_grad():
        return ((model(ids) > 0) == (labels > 0.5)).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", help="ratings.csv or ratings.csv.zst; default: generated")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128, help="examples per rank and step")
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--consistency", default="bsp", help="bsp, ssp:N or asp")
    args = parser.parse_args()

    torch.manual_seed(1)
    dist.init_process_group("weft")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ids, labels, count = load(args.data)
    train = int(0.9 * len(ids)) // ranks * ranks
    mine = slice(rank, train, ranks)
    with weft.connect(
        os.environ["WEFT_SERVERS"],
        key_file=os.environ["WEFT_KEY_FILE"],
        worker=rank,
        workers=ranks,
        thread=1,  # packets move while PyTorch computes
    ) as ps:
        rows = weft.torch.Embedding(
            ps,
            0,
            count,
            args.dim,
            consistency=args.consistency,
            optimizer="adagrad",
            learning_rate=0.1,
            accumulator=1e-6,  # gradients are means over batches: small
        )
        model = DistributedDataParallel(Net(rows, args.dim))
        optimizer = torch.optim.Adagrad(model.parameters(), 0.02)
        for epoch in range(args.epochs):
            loss = torch.tensor(train_epoch(model, rows, optimizer, ids[mine], labels[mine], args.batch))
            dist.all_reduce(loss)
            if rank == 0:
                good = accuracy(model, ids[train:], labels[train:])
                print(f"epoch {epoch + 1} loss {loss.item() / ranks:.4f} accuracy {good:.3f}", flush=True)
            dist.barrier()
        if rank == 0:
            print(f"rows fetched ahead: {rows.prefetched} batches of {rows.prefetched + rows.pulled}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
