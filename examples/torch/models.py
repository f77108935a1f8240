"""The four models of the paper's Table 2: matrix factorization, a multi-layer perceptron, ResNet-20, and
an LSTM that translates; each as a Task, with its data and settings.

Sizes: "tiny" has generated data, for tests; "small" runs on a laptop's processor; "paper" has the batch
sizes and learning rates of the paper's Table 5 (plain SGD: no momentum, no weight decay) and the whole data.
"""

import dataclasses
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

import data

NAMES = ("mf", "mlp", "cnn", "rnn")
SIZES = ("tiny", "small", "paper")


@dataclasses.dataclass
class Task:
    name: str
    make: Callable[[], nn.Module]  # with the random numbers of torch.manual_seed
    train: list  # tensors of equal length
    validation: list
    loss: Callable  # (model, *rows) -> a mean over them
    batch: int  # rows of one worker and step
    rate: float
    epochs: int


class Factors(nn.Module):
    """A rating is the product of a user's and a movie's factors, and the bias of both."""

    def __init__(self, users, movies, factors):
        super().__init__()
        self.user, self.movie = nn.Embedding(users, factors), nn.Embedding(movies, factors)
        self.user_bias, self.movie_bias = nn.Embedding(users, 1), nn.Embedding(movies, 1)
        for table in (self.user, self.movie):
            nn.init.normal_(table.weight, std=0.1)
        for table in (self.user_bias, self.movie_bias):
            nn.init.zeros_(table.weight)

    def forward(self, user, movie):
        product = (self.user(user) * self.movie(movie)).sum(1)
        return product + self.user_bias(user).squeeze(1) + self.movie_bias(movie).squeeze(1)


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.skip = nn.Identity()
        if stride != 1 or before != after:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        out = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(out)) + self.skip(x))


def resnet20(width, classes):
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(3):
        for block in range(3):
            after = width << stage
            layers.append(Block(before, after, 2 if stage > 0 and block == 0 else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class Translator(nn.Module):
    """An LSTM encodes a sentence; another decodes it in the other language, with teacher forcing."""

    def __init__(self, source_words, target_words, embedding, hidden):
        super().__init__()
        self.source = nn.Embedding(source_words, embedding, padding_idx=data.PAD)
        self.target = nn.Embedding(target_words, embedding, padding_idx=data.PAD)
        self.encoder = nn.LSTM(embedding, hidden, batch_first=True)
        self.decoder = nn.LSTM(embedding, hidden, batch_first=True)
        self.words = nn.Linear(hidden, target_words)

    def forward(self, source, target):
        _, state = self.encoder(self.source(source).flip(1))
        return self.words(self.decoder(self.target(target), state)[0])


def _rating_loss(model, user, movie, rating):
    return F.mse_loss(model(user, movie), rating)


def _class_loss(model, rows, label):
    return F.cross_entropy(model(rows), label)


def _translation_loss(model, source, target):
    scores = model(source, target[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten(), ignore_index=data.PAD)


def _mf(folder, size, variant):
    rows, users, movies = data.tiny_ratings() if size == "tiny" else data.ratings(folder)
    # A row's gradient reaches only its own factors. The paper's rate is assumed to be for the sum of the
    # loss over a batch; with the mean, steps would be 256 times smaller and the model would not learn.
    factors, rate = {"tiny": (2, 1.0), "small": (8, 10.0), "paper": (32, 0.1 * 256)}[size]
    train, validation = data.split(rows, len(rows[0]) // 10)
    return Task(
        "mf", lambda: Factors(users, movies, factors), train, validation, _rating_loss,
        32 if size == "tiny" else 256, rate, 5 if size == "tiny" else 20,
    )  # fmt: skip


def _mlp(folder, size, variant):
    words = {"tiny": 50, "small": 1000, "paper": 10000}[size]
    hidden = {"tiny": 16, "small": 64, "paper": 512}[size]
    rows, topics = data.tiny_topics(words) if size == "tiny" else data.topics(folder, words)
    train, validation = data.split(rows, len(rows[0]) // 10)

    def make():
        return nn.Sequential(nn.Linear(words, hidden), nn.ReLU(), nn.Linear(hidden, topics))

    return Task("mlp", make, train, validation, _class_loss, 32, 0.5, 3 if size == "tiny" else 20)


def _cnn(folder, size, variant):
    width, side = {"tiny": (4, 8), "small": (8, 16), "paper": (16, 32)}[size]
    classes = {"": range(10), "first": range(5), "second": range(5, 10)}[variant]
    sets = data.tiny_pictures(side) if size == "tiny" else data.pictures(folder, side, classes)
    count = int(sets[0][1].max()) + 1
    return Task(
        "cnn", lambda: resnet20(width, count), *sets, _class_loss,
        32, 0.1 if size == "paper" else 0.05, 3 if size == "tiny" else 15,
    )  # fmt: skip


def _rnn(folder, size, variant):
    if size == "tiny":
        rows, source, target = data.tiny_sentences()
    else:
        pairs, *words = (6000, 1000, 1200) if size == "small" else (100_000, 8000, 12000)
        rows, source, target = data.sentences(folder, pairs, *words, reverse=variant == "reverse")
    embedding, hidden = {"tiny": (16, 32), "small": (64, 96), "paper": (256, 512)}[size]
    train, validation = data.split(rows, len(rows[0]) // 10)
    return Task(
        "rnn", lambda: Translator(source, target, embedding, hidden), train, validation,
        _translation_loss, 32, 0.25 if size == "paper" else 1.0, 4 if size == "tiny" else 15,
    )  # fmt: skip


VARIANTS = {"mf": ("",), "mlp": ("",), "cnn": ("", "first", "second"), "rnn": ("", "reverse")}


def task(name, size, folder, variant=""):
    """folder: of the data sets; not used for "tiny"."""
    if size != "tiny" and not folder:
        raise data.DataError('no folder of data sets; set --data DIR or WEFT_DATA_DIR, or use "--data tiny"')
    return {"mf": _mf, "mlp": _mlp, "cnn": _cnn, "rnn": _rnn}[name](folder, size, variant)
