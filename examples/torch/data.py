"""The data of the four models, as tensors.

They are read from these files in the folder --data or WEFT_DATA_DIR, in the formats of their publishers:

    movielens-latest-small/ratings.csv      GroupLens, https://grouplens.org/datasets/movielens/
    reuters21578/reut2-000.sgm ...          Reuters-21578, Distribution 1.0, or reuters21578-sgm.tar
    cifar10-jpeg/*train*.bin, *test*.bin    CIFAR-10's binary records (data_batch_*.bin of the original, too)
    tatoeba-eng-fra/fra.txt                 sentence pairs of tatoeba.org, by manythings.org/anki

Each file may be compressed with Zstandard (.zst); reading it requires the program zstd. "tiny" instead of
a folder generates a small data set for tests, from which a model can learn.
"""

import collections
import glob
import io
import os
import re
import subprocess
import tarfile

import torch


class DataError(Exception):
    """A data set is missing or malformed; the text has the remedy."""


def read(path):
    """The contents of a file, or of PATH.zst, decompressed, if only that exists."""
    if os.path.exists(path):
        with open(path, "rb") as file:
            return file.read()
    if not os.path.exists(path + ".zst"):
        raise DataError(f"neither {path} nor {path}.zst exists; set --data DIR or WEFT_DATA_DIR")
    try:
        done = subprocess.run(["zstd", "-dcq", path + ".zst"], stdout=subprocess.PIPE, check=True)
    except FileNotFoundError:
        raise DataError(f"{path}.zst needs the program zstd; install it, or decompress the file") from None
    except subprocess.CalledProcessError:
        raise DataError(f"zstd cannot decompress {path}.zst; download the file again") from None
    return done.stdout


def shuffled(tensors, seed=1):
    order = torch.randperm(len(tensors[0]), generator=torch.Generator().manual_seed(seed))
    return [tensor[order] for tensor in tensors]


def split(tensors, held_out):
    """(training, validation); the last `held_out` of shuffled rows are for validation."""
    tensors = shuffled(tensors)
    cut = len(tensors[0]) - held_out
    if cut <= 0:
        raise DataError(f"{len(tensors[0])} rows are too few: {held_out} are held out for validation")
    return [t[:cut] for t in tensors], [t[cut:] for t in tensors]


# ---- MF: ratings (user, item, value) ----


def ratings(folder):
    """(user, movie, rating - mean), the number of users and of movies."""
    lines = read(os.path.join(folder, "movielens-latest-small", "ratings.csv")).decode().splitlines()
    users, movies, rows = {}, {}, []
    try:
        for line in lines[1:]:
            user, movie, rating, _ = line.split(",")
            rows.append(
                (users.setdefault(user, len(users)), movies.setdefault(movie, len(movies)), float(rating))
            )
    except ValueError:
        raise DataError(f"ratings.csv: {line!r} is not userId,movieId,rating,timestamp") from None
    table = torch.tensor(rows)
    user, movie, rating = table[:, 0].long(), table[:, 1].long(), table[:, 2]
    return [user, movie, rating - rating.mean()], len(users), len(movies)


def tiny_ratings():
    g = torch.Generator().manual_seed(1)
    users, movies = 40, 60
    p, q = torch.randn(users, 2, generator=g), torch.randn(movies, 2, generator=g)
    user = torch.randint(users, (2000,), generator=g)
    movie = torch.randint(movies, (2000,), generator=g)
    return [user, movie, (p[user] * q[movie]).sum(1)], users, movies


# ---- MLP: the topic of a news report ----


def _documents(folder):
    folder = os.path.join(folder, "reuters21578")
    loose = sorted(glob.glob(os.path.join(folder, "reut2-*.sgm")))
    if loose:
        texts = [read(path) for path in loose]
    else:
        with tarfile.open(fileobj=io.BytesIO(read(os.path.join(folder, "reuters21578-sgm.tar")))) as tar:
            members = sorted((m for m in tar if m.isfile()), key=lambda m: m.name)
            texts = [tar.extractfile(member).read() for member in members]
    for text in texts:
        for document in re.findall(r"<REUTERS.*?</REUTERS>", text.decode("latin-1"), re.DOTALL):
            topics = re.search(r"<TOPICS>(.*?)</TOPICS>", document, re.DOTALL)
            body = re.search(r"<BODY>(.*?)</BODY>", document, re.DOTALL)
            names = re.findall(r"<D>(.*?)</D>", topics.group(1)) if topics else []
            if body and len(names) == 1:
                yield names[0], re.findall(r"[a-z]+", body.group(1).lower())


def topics(folder, words=1000, least=10):
    """(bag of words, topic) of the documents that have exactly one topic, for topics with at least `least`
    such documents."""
    documents = list(_documents(folder))
    of_topic = collections.Counter(topic for topic, _ in documents)
    names = sorted(topic for topic, count in of_topic.items() if count >= least)
    documents = [(topic, text) for topic, text in documents if of_topic[topic] >= least]
    often = collections.Counter(word for _, text in documents for word in set(text)).most_common(words)
    number = {word: i for i, (word, _) in enumerate(often)}
    bags = torch.zeros(len(documents), words)
    for row, (_, text) in enumerate(documents):
        for word in text:
            if word in number:
                bags[row, number[word]] = 1.0
    return [bags, torch.tensor([names.index(topic) for topic, _ in documents])], len(names)


def tiny_topics(words=50, names=5):
    g = torch.Generator().manual_seed(2)
    topic = torch.randint(names, (800,), generator=g)
    likely = torch.rand(names, words, generator=g)
    return [torch.bernoulli(likely[topic], generator=g), topic], names


# ---- CNN: what a picture shows ----


def _records(paths):
    raw = b"".join(read(re.sub(r"\.zst$", "", path)) for path in paths)
    if not raw or len(raw) % 3073:
        raise DataError(f"{', '.join(paths)}: not records of 1 + 3,072 bytes; these are CIFAR-10's binary files")
    table = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, 3073)
    pictures = table[:, 1:].reshape(-1, 3, 32, 32).float()
    mean = torch.tensor([125.3, 123.0, 113.9]).view(1, 3, 1, 1)
    return (pictures - mean) / 63.0, table[:, 0].long()


def pictures(folder, side=32, classes=range(10)):
    """((pictures, class) to train with, the same to validate with)"""
    folder = os.path.join(folder, "cifar10-jpeg")
    sets = []
    for names in (("*train*.bin*", "data_batch_*.bin*"), ("*test*.bin*",)):
        paths = sorted(path for name in names for path in glob.glob(os.path.join(folder, name)))
        if not paths:
            raise DataError(f"{folder} has no {names[0]}; set --data DIR or WEFT_DATA_DIR")
        images, label = _records(paths)
        if side < 32:
            images = torch.nn.functional.avg_pool2d(images, 32 // side)
        place = torch.full((10,), -1)
        place[list(classes)] = torch.arange(len(classes))
        wanted = place[label] >= 0
        sets.append([images[wanted], place[label[wanted]]])
    return sets


def tiny_pictures(side=8):
    g = torch.Generator().manual_seed(3)
    label = torch.randint(4, (480,), generator=g)
    shape = torch.randn(4, 3, side, side, generator=g)
    return split([shape[label] + torch.randn(480, 3, side, side, generator=g), label], 120)


# ---- RNN: a sentence in another language ----

PAD, START, END, UNKNOWN = range(4)


def _numbered(sentences, words, length):
    """(rows of word numbers, each START ... END PAD), and how many different numbers there are"""
    often = collections.Counter(word for text in sentences for word in text)
    number = {word: i + 4 for i, (word, _) in enumerate(often.most_common(words - 4))}
    rows = torch.full((len(sentences), length + 2), PAD)
    for row, text in enumerate(sentences):
        coded = [START, *(number.get(word, UNKNOWN) for word in text), END]
        rows[row, : len(coded)] = torch.tensor(coded)
    return rows, len(number) + 4


def sentences(folder, pairs, source_words, target_words, length=10, reverse=False):
    """(English, French) or the reverse, and the sizes of both vocabularies."""
    lines = read(os.path.join(folder, "tatoeba-eng-fra", "fra.txt")).decode().splitlines()
    text = []
    for line in lines:
        fields = line.split("\t")
        if len(fields) < 2:
            raise DataError(f"fra.txt: {line!r} has no tab between two sentences")
        pair = [re.findall(r"\w+|[^\w\s]", field.lower()) for field in fields[:2]]
        if max(map(len, pair)) <= length:
            text.append(pair)
    order = torch.randperm(len(text), generator=torch.Generator().manual_seed(4))[:pairs]
    source, target = zip(*(text[i] for i in order))
    if reverse:
        source, target = target, source
    source, source_size = _numbered(source, source_words, length)
    target, target_size = _numbered(target, target_words, length)
    return [source, target], source_size, target_size


def tiny_sentences(words=20, length=5):
    """The sentence backwards, in another alphabet."""
    g = torch.Generator().manual_seed(5)
    text = torch.randint(4, words, (600, length), generator=g)
    edge = torch.ones(600, 1, dtype=torch.long)
    source = torch.cat([edge * START, text, edge * END], 1)
    target = torch.cat([edge * START, text.flip(1), edge * END], 1)
    return [source, target], words, words
