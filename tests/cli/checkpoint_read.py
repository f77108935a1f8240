"""Reads a directory of checkpoints with numpy and the standard library alone, as docs/CHECKPOINTS.md
tells: checkpoint_read.py DIR [NUMBER] prints what is in it as JSON; checkpoint_read.py DIR --compare
OTHER fails when the newest checkpoints of both do not hold the same rows."""
import glob
import json
import os
import struct
import sys

import numpy

TYPES = {"U32": "<u4", "U64": "<u8", "F32": "<f4"}
MASK = (1 << 64) - 1


def read_file(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(length))
        data = file.read()
    metadata = head.pop("__metadata__")
    tensors = {}
    for name, t in head.items():
        begin, end = t["data_offsets"]
        tensors[name] = numpy.frombuffer(data[begin:end], TYPES[t["dtype"]]).reshape(t["shape"])
    return metadata, tensors


def manifests(directory, number=None):
    """Manifests by first shard; of two with the same first shard the later record of the log is used."""
    found = {}
    for path in sorted(glob.glob(directory + "/log/0*")):
        with open(path) as file:
            record = json.loads(file.read())
        if record.get("format") == "weft-checkpoint" and number in (None, record["number"]):
            found[record["number"], record["first"]] = record
    return [found[key] for key in sorted(found)]


def newest(directory):
    covered = {}
    for manifest in manifests(directory):
        key = manifest["number"], manifest["shards"]
        covered[key] = covered.get(key, 0) + len(manifest["files"])
    return max(number for (number, shards), files in covered.items() if files == shards)


def mix(x):
    """The finalizer of splitmix64, which determines an id's shard."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def load(directory, number):
    """Rows of table 0 by id, and the clock; deltas are applied to their base."""
    rows, clock, files = {}, None, 0
    for manifest in manifests(directory, number):
        assert manifest["format"] == "weft-checkpoint" and manifest["version"] in (2, 3)
        chain = [manifest]
        while chain[0]["base"] != 0:
            same = [m for m in manifests(directory, chain[0]["base"])
                    if m["first"] == manifest["first"]]
            chain.insert(0, same[0])
        of_server = {}
        for link in chain:
            for i, file in enumerate(link["files"]):
                path = os.path.join(directory, file["name"])
                assert os.path.getsize(path) == file["bytes"]
                metadata, tensors = read_file(path)
                files += 1
                assert int(metadata["shard"]) == link["first"] + i
                ids = tensors["table.0.ids"]
                weights = tensors["table.0.weights"]
                assert len(set(ids.tolist())) == len(ids)
                of_shard = of_server.setdefault(i, {})
                if "table.0.replaces" in metadata:
                    of_shard.clear()
                for id in tensors["table.0.removed"].tolist():
                    of_shard.pop(id, None)
                for id, row in zip(ids.tolist(), weights):
                    assert mix(id) * link["shards"] >> 64 == link["first"] + i
                    of_shard[id] = row
        for of_shard in of_server.values():
            rows.update(of_shard)
        at = int(metadata["table.0.clock"])
        assert clock in (None, at), "parts of different clocks"
        clock = at
        assert set(tensors["table.0.worker_clocks"][:2].tolist()) == {at}
        state = tensors.get("table.0.state")
        assert state is None or (state >= 0).all()  # Adagrad's state is a sum of squares
    return rows, clock, files


def main():
    directory = sys.argv[1]
    if len(sys.argv) > 3:
        a, _, _ = load(directory, newest(directory))
        b, _, _ = load(sys.argv[3], newest(sys.argv[3]))
        assert a.keys() == b.keys(), "other rows"
        worst = max(float(numpy.abs(a[id] - b[id]).max()) for id in a)
        print("%d rows, at most %g apart" % (len(a), worst))
        assert worst < 1e-4
        return
    number = int(sys.argv[2]) if len(sys.argv) > 2 else newest(directory)
    rows, clock, files = load(directory, number)
    norm = float(numpy.sqrt(sum(float((row.astype("f8") ** 2).sum()) for row in rows.values())))
    print(json.dumps({"number": number, "clock": clock, "rows": len(rows), "files": files,
                      "norm": norm}))


main()
