#!/usr/bin/env python3
"""Checks an exposition and prints its errors; independent of src/obs/exposition.c.

    metrics_check.py format FILE                 the text format 0.0.4, and Prometheus' naming rules
    metrics_check.py names FILE...               the families, one per line
    metrics_check.py value FILE NAME [LABEL=V]   the sum of the samples that have these labels
    metrics_check.py dashboard FILE              the weft_ and process_ names that a dashboard uses
"""
import json
import math
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(r"^(%s)(?:\{(.*)\})? (\S+)$" % NAME)


def parse(text):
    """Families in their order: name -> (type, help, [(sample name, labels, value)])."""
    families, current, problems = {}, None, []
    if not text.endswith("\n"):
        problems.append("the last line does not end")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            if name in families:
                problems.append("line %d: family %s comes twice" % (number, name))
            current = name
            families[name] = [None, line.split(" ", 3)[3], []]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name != current or families[name][0] is not None or families[name][2]:
                problems.append("line %d: TYPE is not behind its HELP" % number)
            families[name][0] = kind
        else:
            match = SAMPLE.match(line)
            if not match or current is None:
                problems.append("line %d: no sample: %s" % (number, line))
                continue
            labels = tuple(re.findall(LABEL, match.group(2) or ""))
            rebuilt = ",".join('%s="%s"' % pair for pair in labels)
            if rebuilt != (match.group(2) or ""):
                problems.append("line %d: labels: %s" % (number, line))
            families[current][2].append((match.group(1), labels, float(match.group(3))))
    return families, problems


def check_histogram(name, samples, problems):
    series = {}
    for sample, labels, value in samples:
        rest = tuple(pair for pair in labels if pair[0] != "le")
        entry = series.setdefault(rest, {"buckets": []})
        if sample == name + "_bucket":
            entry["buckets"].append((float(dict(labels)["le"]), value))
        else:
            entry[sample[len(name):]] = value
    for rest, entry in series.items():
        buckets = entry["buckets"]
        edges = [edge for edge, _ in buckets]
        counts = [count for _, count in buckets]
        if edges != sorted(set(edges)) or not math.isinf(edges[-1]):
            problems.append("%s%s: edges" % (name, rest))
        if counts != sorted(counts) or counts[-1] != entry.get("_count") or "_sum" not in entry:
            problems.append("%s%s: counts" % (name, rest))


def check(families, problems):
    for name, (kind, text, samples) in families.items():
        allowed = [name] if kind != "histogram" else [name + s for s in ("_bucket", "_sum", "_count")]
        seen = set()
        if kind not in ("counter", "gauge", "histogram"):
            problems.append("%s: type %s" % (name, kind))
        if (kind == "counter") != name.endswith("_total"):
            problems.append("%s: a counter ends with _total, and nothing else does" % name)
        if kind == "histogram" and not name.endswith("_seconds"):
            problems.append("%s: no unit" % name)
        if len(text) < 5 or not samples:
            problems.append("%s: no help, or no sample" % name)
        for sample, labels, value in samples:
            if sample not in allowed or (sample, labels) in seen or math.isnan(value) or value < 0:
                problems.append("%s: sample %s %s" % (name, sample, labels))
            seen.add((sample, labels))
        if kind == "histogram":
            check_histogram(name, samples, problems)
    return problems


def total(families, name, wanted):
    samples = [s for family in families.values() for s in family[2] if s[0] == name]
    if not samples:
        sys.exit("no %s" % name)
    return sum(v for _, labels, v in samples if all(pair in labels for pair in wanted))


def expressions(value):
    """Every "expr" and "query" of a dashboard."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("expr", "query") and isinstance(inner, str):
                yield inner
            else:
                yield from expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from expressions(inner)


def main():
    verb, path, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
    if verb == "dashboard":
        names = set()
        for text in expressions(json.load(open(path))):
            names.update(re.findall(r"\b(?:weft|process)_[a-z0-9_]+\b", text))
        print("\n".join(sorted({re.sub(r"_(bucket|sum|count)$", "", name) for name in names})))
        return
    if verb == "names":
        names = set()
        for each in [path] + rest:
            names.update(parse(open(each).read())[0])
        print("\n".join(sorted(names)))
        return
    families, problems = parse(open(path).read())
    if verb == "format":
        problems = check(families, problems)
        print("\n".join(problems) or "good, %d families" % len(families))
        sys.exit(1 if problems else 0)
    print("%.15g" % total(families, rest[0], [tuple(pair.split("=")) for pair in rest[1:]]))


main()
