"""Checkpoints of `weft server` as numpy arrays.

    from weft import checkpoint

    saved = checkpoint.load("ckpt")          # the newest; its deltas are applied
    table = saved.tables[0]
    table.ids, table.weights                 # uint64 (n,), float32 (n, dim), sorted by ids
    saved.tables[1].vector                   # of a dense table: float32 (length,)

Requires only numpy, so this file can be copied elsewhere. Checksums are verified if the library
libxxhash is available. The format is in docs/CHECKPOINTS.md.
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
    """A file is damaged. The text names the file and the error."""


@dataclass(frozen=True)
class Table:
    """The rows of one table, of all shards, sorted by their ids."""

    number: int
    about: str  # dim, optimizer, consistency and workers, as text
    clock: int  # last clock that all workers had finished
    ids: np.ndarray  # uint64 (n,); of a dense table the rows' numbers
    weights: np.ndarray  # float32 (n, dim)
    state: np.ndarray  # float32 (n, k): the optimizer's state, docs/TABLES.md; k may be 0
    last_used: np.ndarray  # uint32 (n,): clock in progress at the row's last push (LRU: or pull)
    count: np.ndarray  # uint32 (n,): gradients that reached the row's first block
    worker_clocks: np.ndarray  # uint32 (workers,): last clock that each has finished on any shard
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
    """The valid checkpoints in a directory, oldest first."""
    parts = _Log(Path(directory)).parts
    return [number for number in sorted({part["number"] for part in parts})
            if _cover(parts, number)]


def load(directory, number=None, verify=None):
    """Read a checkpoint, the newest when no number is given. -> Checkpoint

    verify: compare checksums; None = if libxxhash is available. Raises DamagedError, or
    FileNotFoundError if there is no such checkpoint.
    """
    directory = Path(directory)
    if number is None:
        known = numbers(directory)
        if not known:
            raise FileNotFoundError(f"{directory} has no complete checkpoint")
        number = known[-1]
    hashed = _hash_function() if verify is None or verify else None
    if verify and hashed is None:
        raise OSError("libxxhash is not installed: install it, or pass verify=False")
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


class _Log:
    """The state that results from all records of a directory's log (docs/CHECKPOINTS.md, "Who may
    write").

    parts: the manifests that are valid, as dicts; "path" is the file that each one was read from.
    """

    def __init__(self, directory, hashed=None):
        self.hashed = hashed
        self.parts = []
        self.damaged = []  # names of records
        self.claims = {}  # serial -> record; "replaced" is set by a later claim to its shards
        for path in sorted(directory.glob("*.manifest")):  # of version 1
            if re.fullmatch(r"\d{12}-\d{4}-\d{4}\.manifest", path.name):
                self._add(0, path)
        serial = 1
        while (path := directory / "log" / f"{serial:012d}").exists():
            self._add(serial, path)
            serial += 1

    def _add(self, serial, path):
        raw = path.read_bytes()
        if raw == b'{"kind":"removed"}\n':
            return  # an empty file is a damaged record
        record = self._parse(path, raw)
        if record.get("format") == "weft-checkpoint":
            self._add_manifest(record, path)
        elif record.get("kind") == "claim":
            self._add_claim(serial, record)
        elif record.get("kind") == "restored":
            claim = self.claims.get(record["claim"])
            if claim is not None and not claim["replaced"]:
                self._void_damaged(record["number"])
                self._void_after(claim, record["number"])

    def _parse(self, path, raw):
        """-> the record; {} if it is damaged. A record of a later version raises an error."""
        try:
            record = json.loads(raw)
            if self.hashed:
                digits = record["xxh3_64"]
                zeroed = raw.replace(digits.encode(), b"0" * 16)
                if self.hashed(zeroed) != int(digits, 16):
                    raise ValueError("another checksum")
            limit = 3 if record["format"] == "weft-checkpoint" else 1
            if record["version"] > limit:
                raise NotImplementedError(f"{path}: of version {record['version']}, which this "
                                          "release does not read")
            return record
        except (ValueError, KeyError, TypeError):
            self.damaged.append(f"{path.parent.name}/{path.name}")
            return {}

    def _add_claim(self, serial, record):
        for claim in self.claims.values():
            claim["replaced"] |= _overlap(record, claim["shards"], claim["first"], claim["count"])
        self.claims[serial] = {**record, "replaced": False}
        self._void_after(record, self._newest())

    def _void_damaged(self, number):
        """Remove the valid checkpoints that are newer than the restored one."""
        while (newest := self._newest()) > number:
            self.parts = [part for part in self.parts if part["number"] != newest]

    def _newest(self):
        whole = {part["number"] for part in self.parts if _cover(self.parts, part["number"])}
        return max(whole, default=0)

    def _void_after(self, claim, number):
        self.parts = [part for part in self.parts if part["number"] <= number or not
                      _overlap(claim, part["shards"], part["first"], len(part["files"]))]

    def _add_manifest(self, record, path):
        try:
            fields = [record[key] for key in ("number", "base", "shards", "first")]
            good = all(isinstance(field, int) and field >= 0 for field in fields)
            good = good and record["base"] < record["number"]
            for file in record["files"]:
                good = good and isinstance(file["bytes"], int) and file["bytes"] >= 8
                good = good and re.fullmatch(r"[0-9-]+\.safetensors", file["name"])
        except (KeyError, TypeError):
            good = False
        claim = self.claims.get(record.get("claim"))
        if good and not (claim and claim["replaced"]):
            self.parts.append({**record, "path": path})


def _overlap(claim, shards, first, count):
    """Whether the claim has one of these shards, or is for a different number of shards."""
    return claim["shards"] != shards or (claim["first"] < first + count
                                         and first < claim["first"] + claim["count"])


def _base(parts, part):
    """The part that a delta is based on; None if it is missing."""
    return next((other for other in parts
                 if other["number"] == part["base"] and other["first"] == part["first"]
                 and len(other["files"]) == len(part["files"])), None)


def _has_bases(parts, part):
    for _ in range(_CHAIN_MAX):
        if part is None or part["base"] == 0:
            return part is not None
        part = _base(parts, part)
    return False


def _cover(parts, number):
    """The parts of checkpoint `number` that together have every shard once, in order; [] if some
    are missing."""
    found, at = [], 0
    while not found or at < found[0]["shards"]:
        part = next((part for part in parts if part["number"] == number and part["first"] == at
                     and (not found or part["shards"] == found[0]["shards"])), None)
        if part is None or not part["files"] or not _has_bases(parts, part):
            return []
        found.append(part)
        at += len(part["files"])
    return found


class _Reader:
    def __init__(self, directory, hashed):
        self.directory = directory
        self.hashed = hashed

    def read(self, number):
        log = _Log(self.directory, self.hashed)
        parts, whole = log.parts, _cover(log.parts, number)
        damaged = f"; damaged: {', '.join(log.damaged)}" if log.damaged else ""
        if not whole and (damaged or any(part["number"] == number for part in parts)):
            raise DamagedError(f"checkpoint {number} lacks the manifests of some shards{damaged}")
        if not whole:
            raise FileNotFoundError(f"{self.directory} has no checkpoint {number}")
        tables, shards = {}, whole[0]["shards"]
        for part in whole:
            chain = [part]
            while chain[0]["base"] != 0:
                chain.insert(0, _base(parts, chain[0]))
            for i in range(len(part["files"])):
                self._shard(part["first"] + i, [link["files"][i] for link in chain], tables)
        merged = {number: _merge(parts) for number, parts in sorted(tables.items())}
        return Checkpoint(number, shards, merged)

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
            raise DamagedError(f"{path.name}: its head is damaged: its checksum differs")
        try:
            head = json.loads(data[8 : 8 + length].tobytes())
            metadata = head.pop("__metadata__")
            tensors = {name: self._tensor(path, data[8 + length :], name, head[name], metadata)
                       for name in head}
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DamagedError):
                raise
            raise DamagedError(f"{path.name}: its head is invalid: {error}") from None
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
            raise DamagedError(f"{path.name}: {name} is damaged: its checksum differs")
        return data[begin:end].view(kind).reshape(entry["shape"])

    def _shard(self, shard, entries, tables):
        """Apply the deltas to the full checkpoint, oldest first; later rows replace earlier."""
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
    rows["replaces"] = prefix + "replaces" in metadata
    rows["worker_clocks"] = tensors[prefix + "worker_clocks"]
    rows["metadata"] = {name: metadata[prefix + name] for name in ("spec", "about", "clock")}
    rows["number"] = number
    return rows


def _replace(old, new):
    if old is None or new["replaces"]:
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
