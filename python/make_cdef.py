"""Writes weft/_cdef.py: declarations of <weft/ps.h>, <weft/coll.h> and what these need from other
headers, in the form that cffi reads, and the version of weft.

    python3 python/make_cdef.py           rewrite it, after a change of the headers or of the version
    python3 python/make_cdef.py --check   exit 1 if it does not match the headers (make test)

The headers remain the only definition of the interface, and meson.build that of the version. The parser
supports only what the headers use: comments, preprocessor lines, WEFT_API, WEFT_NODISCARD, and the
X-macro of the status codes.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
INCLUDE = ROOT / "include" / "weft"
TARGET = HERE / "weft" / "_cdef.py"

FRAME = '''"""What libweft.so offers, as cffi reads it. Written by make_cdef.py from the headers: do not edit."""

VERSION = "{}"

SOURCE = """
{}
"""
'''


def bare(text):
    """A header without comments, preprocessor lines, extern "C" and the macros of declarations."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", text, flags=re.M)
    text = re.sub(r'extern "C" \{|^\}$', "", text, flags=re.M)
    return re.sub(r"\b(?:WEFT_API|WEFT_NODISCARD) ", "", text)


def status(text):
    """The status codes: names from the list that defines the header's enum."""
    names = re.findall(r"^ *X\((\w+), ", text, flags=re.M)
    lines = ["typedef enum {"] + [f"    WEFT_{name}," for name in names] + ["} weft_status;"]
    functions = [line for line in bare(text).splitlines() if "weft_status_" in line]
    return "\n".join(lines + functions)


def enum(text, name):
    return re.search(rf"enum {name} \{{.*?\}};", bare(text), flags=re.S).group(0)


def version():
    text = (ROOT / "meson.build").read_text()
    return re.search(r"^project\(.*?\bversion: '([^']+)'", text, flags=re.M | re.S).group(1)


def source():
    names = ("status", "version", "transport", "ps", "coll")
    header = {name: (INCLUDE / f"{name}.h").read_text() for name in names}
    parts = [
        status(header["status"]),
        bare(header["version"]),
        enum(header["transport"], "weft_transport_security"),
        bare(header["ps"]),
        bare(header["coll"]),
    ]
    lines = [line.rstrip() for line in "\n".join(parts).splitlines()]
    return FRAME.format(version(), "\n".join(line for line in lines if line.strip()))


def main():
    if "--check" in sys.argv[1:]:
        if TARGET.read_text() != source():
            sys.exit("python/weft/_cdef.py does not match the headers: run python/make_cdef.py")
    else:
        TARGET.write_text(source())


if __name__ == "__main__":
    main()
