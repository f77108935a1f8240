"""Checkpoints of `weft server` as numpy arrays.

    from weft import checkpoint

    saved = checkpoint.load("ckpt")          # the newest; its deltas are applied
    table = saved.tables[0]
    table.ids, table.weights                 # uint64 (n,), float32 (n, dim), sorted by ids
    saved.tables[1].vector                   # of a dense table: float32 (length,)

Needs numpy alone: this file may be copied elsewhere. Checksums are compared where the library
libxxhash is there. The format is in docs/CHECKPOINTS.md.
"""

import ctypes
import ctypes.util
import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_TYPES = {"U8": "u1", "U32": "<u4", "U64": "<u8", "F32": "<f4"}
_HEAD_MAX = 16 << 20
_CHAIN_MAX = 1024
_DENSE = 1


class DamagedError(ValueError):
    """A file is not what it should be. The text names it, and says what is wrong."""


@dataclass(frozen=True)
class Table:
    """The rows of one table, of all shards, sorted by their ids."""

    number: int
    about: str  # dim, optimizer, consistency and workers, in words
    clock: int  # that all workers had finished
    ids: np.ndarray  # uint64 (n,); of a dense table the rows' numbers
    weights: np.ndarray  # float32 (n, dim)
    state: np.ndarray  # float32 (n, k): what the optimizer keeps, docs/TABLES.md; k may be 0
    last_used: np.ndarray  # uint32 (n,): clock in progress when the row was last used
    count: np.ndarray  # uint32 (n,): gradients that reached it
    worker_clocks: np.ndarray  # uint32 (workers,): clocks that each has finished, anywhere
    length: int  # of a dense table: floats of the vector; 0 = sparse

    @property
    def vector(self):
        """A dense table as one array (length,). A view."""
        if not self.length:
            raise TypeError(f"table {self.number} is sparse: it has ids and weights")
        return self.weights.reshape(-1)[: self.length]


@dataclass(frozen=True)
class Checkpoint:
    number: int
    shards: int
    tables: dict  # of Table, by number


def numbers(directory):
    """The checkpoints in a directory that have the manifests of all shards, oldest first."""
    found = {int(path.name[:12]) for path in Path(directory).glob("*.manifest")
             if re.fullmatch(r"\d{12}-\d{4}-\d{4}\.manifest", path.name)}
    return [number for number in sorted(found) if _is_whole(_names(Path(directory), number))]


def load(directory, number=None, verify=None):
    """Read a checkpoint, the newest when no number is given. -> Checkpoint

    verify: compare checksums; None = if libxxhash is there. Raises DamagedError, or
    FileNotFoundError where there is none.
    """
    directory = Path(directory)
    if number is None:
        known = numbers(directory)
        if not known:
            raise FileNotFoundError(f"{directory} holds no checkpoint that is whole")
        number = known[-1]
    hashed = _hash_function() if verify is None or verify else None
    if verify and hashed is None:
        raise OSError("libxxhash is not there: install it, or pass verify=False")
    reader = _Reader(directory, hashed)
    return reader.read(number)


# ---- files ---------------------------------------------------------------------------------------


def _hash_function():
    """bytes-like -> XXH3 of 64 bits, or None."""
    name = ctypes.util.find_library("xxhash")
    if name is None:
        return None
    function = ctypes.CDLL(name).XXH3_64bits
    function.restype = ctypes.c_uint64
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

    def hashed(data):
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)
        return function(array.ctypes.data, array.size)

    return hashed


def _names(directory, number):
    """The manifests of a number: (first shard, last shard, path)."""
    names = []
    for path in sorted(directory.glob(f"{number:012d}-*.manifest")):
        parts = re.fullmatch(r"\d{12}-(\d{4})-(\d{4})\.manifest", path.name)
        if parts:
            names.append((int(parts[1]), int(parts[2]), path))
    return names


def _is_whole(names):
    """Does each go on where the one before ended, up to the number of shards?"""
    at = 0
    for first, last, _ in names:
        if first != at or last < first:
            return False
        at = last + 1
    if not names:
        return False
    try:
        return json.loads(names[0][2].read_text())["shards"] == at
    except (OSError, ValueError, KeyError, TypeError):
        return False


class _Reader:
    def __init__(self, directory, hashed):
        self.directory = directory
        self.hashed = hashed

    def read(self, number):
        names = _names(self.directory, number)
        if not names:
            raise FileNotFoundError(f"{self.directory} holds no checkpoint {number}")
        if not _is_whole(names):
            raise DamagedError(f"checkpoint {number} lacks the manifests of some shards")
        tables, shards = {}, 0
        for first, _, path in names:
            chain = [self._manifest(path)]
            while chain[0]["base"] != 0:
                path = self._beside(path, chain[0]["base"])
                chain.insert(0, self._manifest(path))
                if len(chain) > _CHAIN_MAX or chain[0]["number"] >= chain[1]["number"]:
                    raise DamagedError(f"{path.name}: its deltas are based on one another")
            shards = chain[-1]["shards"]
            for i in range(len(chain[-1]["files"])):
                self._shard(first + i, [link["files"][i] for link in chain], tables)
        merged = {number: _merge(parts) for number, parts in sorted(tables.items())}
        return Checkpoint(number, shards, merged)

    def _beside(self, path, base):
        return path.with_name(f"{base:012d}{path.name[12:]}")

    def _manifest(self, path):
        raw = path.read_bytes()
        try:
            manifest = json.loads(raw)
            good = manifest["format"] == "weft-checkpoint" and manifest["version"] == 1
            fields = [manifest[key] for key in ("number", "base", "shards", "first")]
            good = good and all(isinstance(field, int) and field >= 0 for field in fields)
            for file in manifest["files"]:
                good = good and isinstance(file["bytes"], int) and file["bytes"] >= 8
                good = good and re.fullmatch(r"[0-9-]+\.safetensors", file["name"])
            digits = manifest["xxh3_64"]
        except (ValueError, KeyError, TypeError):
            raise DamagedError(f"{path.name} is damaged, or of another version") from None
        if not good:
            raise DamagedError(f"{path.name} is damaged, or of another version")
        zeroed = raw.replace(digits.encode(), b"0" * 16)
        if self.hashed and self.hashed(zeroed) != int(digits, 16):
            raise DamagedError(f"{path.name} is damaged: its checksum is another")
        return manifest

    def _file(self, entry):
        """-> metadata, tensors by name. Views of the file, which is mapped."""
        path = self.directory / entry["name"]
        if path.stat().st_size != entry["bytes"]:
            raise DamagedError(f"{path.name} has {path.stat().st_size} bytes, not {entry['bytes']}")
        data = np.memmap(path, dtype=np.uint8, mode="r")
        (length,) = struct.unpack("<Q", data[:8].tobytes())
        if length > min(_HEAD_MAX, data.size - 8):
            raise DamagedError(f"{path.name}: its head is longer than it can be")
        if self.hashed and self.hashed(data[: 8 + length]) != int(entry["head_xxh3_64"], 16):
            raise DamagedError(f"{path.name}: its head is damaged: its checksum is another")
        try:
            head = json.loads(data[8 : 8 + length].tobytes())
            metadata = head.pop("__metadata__")
            tensors = {name: self._tensor(path, data[8 + length :], name, head[name], metadata)
                       for name in head}
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DamagedError):
                raise
            raise DamagedError(f"{path.name}: its head makes no sense: {error}") from None
        return metadata, tensors

    def _tensor(self, path, data, name, entry, metadata):
        begin, end = entry["data_offsets"]
        kind = np.dtype(_TYPES[entry["dtype"]])
        elements = 1
        for size in entry["shape"]:
            elements *= size
        if not 0 <= begin <= end <= data.size or elements * kind.itemsize != end - begin:
            raise DamagedError(f"{path.name}: {name} is not within the file")
        if self.hashed and self.hashed(data[begin:end]) != int(metadata["xxh3_64." + name], 16):
            raise DamagedError(f"{path.name}: {name} is damaged: its checksum is another")
        return data[begin:end].view(kind).reshape(entry["shape"])

    def _shard(self, shard, entries, tables):
        """Deltas upon the whole one, oldest first; a later row replaces an earlier one."""
        rows = {}
        for entry in entries:
            metadata, tensors = self._file(entry)
            if metadata["shard"] != str(shard):
                raise DamagedError(f"{entry['name']} is of shard {metadata['shard']}, not {shard}")
            for name in tensors:
                parts = re.fullmatch(r"table\.(\d+)\.ids", name)
                if parts:
                    number = int(parts[1])
                    rows[number] = _replace(rows.get(number), _rows(number, metadata, tensors))
        for number, part in rows.items():
            tables.setdefault(number, []).append(part)


# ---- rows ----------------------------------------------------------------------------------------

_COLUMNS = ("ids", "weights", "state", "clock", "count")


def _rows(number, metadata, tensors):
    prefix = f"table.{number}."
    rows = {name: tensors[prefix + name] for name in _COLUMNS if prefix + name in tensors}
    rows.setdefault("state", np.zeros((len(rows["ids"]), 0), dtype=np.float32))
    if any(len(rows[name]) != len(rows["ids"]) for name in _COLUMNS):
        raise DamagedError(f"table {number}: its columns are of different lengths")
    rows["removed"] = tensors[prefix + "removed"]
    rows["worker_clocks"] = tensors[prefix + "worker_clocks"]
    rows["metadata"] = {name: metadata[prefix + name] for name in ("spec", "about", "clock")}
    rows["number"] = number
    return rows


def _replace(old, new):
    if old is None:
        return new
    stays = ~np.isin(old["ids"], np.concatenate((new["removed"], new["ids"])))
    joined = dict(new)
    for name in _COLUMNS:
        joined[name] = np.concatenate((old[name][stays], new[name]))
    return joined


def _merge(parts):
    """The shards of one table."""
    ids = np.concatenate([part["ids"] for part in parts])
    order = np.argsort(ids, kind="stable")
    columns = {name: np.concatenate([part[name] for part in parts])[order] for name in _COLUMNS}
    number = parts[0]["number"]
    if len(ids) > 1 and (np.diff(columns["ids"]) == 0).any():
        raise DamagedError(f"table {number}: two shards have the same row")
    metadata = parts[0]["metadata"]
    spec = bytes.fromhex(metadata["spec"])
    dense = spec[56] == _DENSE
    return Table(
        number=number,
        about=metadata["about"],
        clock=min(int(part["metadata"]["clock"]) for part in parts),
        ids=columns["ids"],
        weights=columns["weights"],
        state=columns["state"],
        last_used=columns["clock"],
        count=columns["count"],
        worker_clocks=np.max([part["worker_clocks"] for part in parts], axis=0),
        length=struct.unpack(">Q", spec[88:96])[0] if dense else 0,
    )
