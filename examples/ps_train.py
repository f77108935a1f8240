"""Trains a logistic regression on a parameter server, with any number of workers.

    weft keygen job.key; export WEFT_JOB_KEY="$(cat job.key)" WEFT_SERVERS=127.0.0.1:7700
    weft server --workers 2 & export WEFT_WORKERS=2
    WEFT_RANK=0 python3 ps_train.py & WEFT_RANK=1 python3 ps_train.py
"""

import numpy as np
import weft

FEATURES, ACTIVE, BATCH, STEPS, TEST = 1000, 9, 100, 200, 2000


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def make_rows(rng, n):
    """Random features of n rows, and labels: likely 1 if odd features outnumber even ones."""
    ids = rng.integers(FEATURES, size=(n, ACTIVE), dtype=np.uint64)
    odds = sigmoid(2 * ((ids % 2).sum(axis=1) - ACTIVE / 2))
    return ids, rng.random(n) < odds


with weft.connect() as ps:  # servers, rank and so on are in the environment
    table = ps.table(0, dim=1, optimizer="adagrad")
    rng = np.random.default_rng(ps.worker)  # every worker has rows of its own
    for step in range(STEPS):
        ids, labels = make_rows(rng, BATCH)
        weights = table.pull(ids.ravel()).reshape(BATCH, ACTIVE)
        error = sigmoid(weights.sum(axis=1)) - labels
        table.push(ids.ravel(), np.repeat(error, ACTIVE).astype(np.float32))
        table.clock()
    ids, labels = make_rows(rng, TEST)
    scores = table.pull(ids.ravel()).reshape(TEST, ACTIVE).sum(axis=1)
    print(f"accuracy {np.mean((scores > 0) == labels):.3f} on rows it has not seen")
