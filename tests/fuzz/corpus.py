#!/usr/bin/env python3
"""Kept fuzzing inputs, one file for each target: of every input its length in decimal, a newline, its bytes and a newline.

    corpus.py unpack FILE FOLDER     a file for each input, named by its digest
    corpus.py pack FOLDER FILE       in the order of their digests
"""

import hashlib
import pathlib
import sys


def unpack(file, folder):
    folder.mkdir(parents=True, exist_ok=True)
    data = file.read_bytes() if file.exists() else b""
    while data:
        length, _, data = data.partition(b"\n")
        content, data = data[:int(length)], data[int(length) + 1:]
        (folder / hashlib.sha1(content).hexdigest()).write_bytes(content)


def pack(folder, file):
    contents = [path.read_bytes() for path in folder.iterdir()]
    contents.sort(key=lambda content: hashlib.sha1(content).digest())
    file.write_bytes(b"".join(b"%d\n%s\n" % (len(content), content) for content in contents))


if __name__ == "__main__":
    verb, source, target = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    {"unpack": unpack, "pack": pack}[verb](source, target)
