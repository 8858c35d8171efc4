#!/usr/bin/env python3
"""Makes PREFIX.bin and PREFIX.idx, the token files that a job reads with data.kind: megatron, from documents.

    prepare_tokens.py --vocab vocab.json --merges merges.txt --out PREFIX FILE...   GPT-2's byte-level BPE
    prepare_tokens.py --tokenizer tokenizer.json --out PREFIX FILE...               any Hugging Face tokenizer
    prepare_tokens.py --ids --out PREFIX FILE...                                    token ids as decimal numbers

A document is a line of a file (with --whole-files, a file); empty ones are left out. --end-of-document appends that id
to each. The first two need the Python package `tokenizers` (pip install tokenizers), the third nothing. Prints how many
documents and tokens there are and the largest id: model.vocab must be above it.
"""

import argparse
import array
import os
import struct
import sys

MAGIC = b"MMIDIDX\0\0"
# Megatron-LM's codes for its token types (megatron/core/datasets/indexed_dataset.py), and Python's codes for the same
# types.
UINT16, INT32 = (8, "H"), (4, "i")


def fail(place, why):
    sys.exit(f"prepare_tokens.py: {place}: {why}")


def encoder(options):
    """Returns a function from text to ids."""
    if options.ids:
        return lambda text: [int(word) for word in text.split()]
    try:
        import tokenizers
    except ImportError:
        sys.exit("prepare_tokens.py: the Python package `tokenizers` is missing: pip install tokenizers")
    try:
        if options.tokenizer:
            tokenizer = tokenizers.Tokenizer.from_file(options.tokenizer)
        else:
            tokenizer = tokenizers.ByteLevelBPETokenizer(options.vocab, options.merges)
    except Exception as error:  # the library has no exception class of its own for a file that it cannot read
        fail(options.tokenizer or f"{options.vocab} and {options.merges}", error)
    return lambda text: tokenizer.encode(text).ids


def first_wrong_byte(path):
    """Returns the line at which a file stops being UTF-8, and a sentence with the byte. (The error of documents() does not give
    the position, because its decoder reads the file in pieces and counts from the last piece.)"""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f"{path}:{number}", f"byte {error.start + 1} of the line, 0x{line[error.start]:02x}, is not UTF-8; convert the file"
    return path, "is not UTF-8; convert the file"


def documents(options):
    for path in options.files:
        try:
            with open(path, encoding="utf-8") as file:
                if options.whole_files:
                    yield path, file.read()
                else:
                    for number, line in enumerate(file, 1):
                        yield f"{path}:{number}", line.rstrip("\n")
        except OSError as error:
            fail(path, error.strerror)
        except UnicodeDecodeError:
            fail(*first_wrong_byte(path))


def write_pair(prefix, sequences):
    """Writes the two files from lists of ids, one list per document. A file appears under its name only when both files are
    complete. Returns the number of tokens and the largest id."""
    largest = max((max(ids) for ids in sequences), default=0)
    code, kind = UINT16 if largest < 1 << 16 else INT32
    width = array.array(kind).itemsize
    with open(prefix + ".bin.part", "wb") as file:
        for ids in sequences:
            tokens = array.array(kind, ids)
            if sys.byteorder == "big":
                tokens.byteswap()
            file.write(tokens.tobytes())
    offsets, at = [], 0
    for ids in sequences:
        offsets.append(at)
        at += len(ids) * width
    n = len(sequences)
    with open(prefix + ".idx.part", "wb") as file:
        file.write(MAGIC + struct.pack("<QBQQ", 1, code, n, n + 1))
        file.write(struct.pack(f"<{n}i", *map(len, sequences)))
        file.write(struct.pack(f"<{n}q", *offsets))
        file.write(struct.pack(f"<{n + 1}q", *range(n + 1)))
    for suffix in (".bin", ".idx"):
        os.replace(prefix + suffix + ".part", prefix + suffix)
    return at // width, largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab")
    parser.add_argument("--merges")
    parser.add_argument("--tokenizer")
    parser.add_argument("--ids", action="store_true")
    parser.add_argument("--whole-files", action="store_true")
    parser.add_argument("--end-of-document", type=int)
    parser.add_argument("--out", required=True, metavar="PREFIX")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    if [bool(options.vocab and options.merges), bool(options.tokenizer), options.ids].count(True) != 1:
        parser.error("name one of --vocab with --merges, --tokenizer, and --ids")
    encode = encoder(options)
    sequences = []
    for place, text in documents(options):
        try:
            ids = encode(text)
        except ValueError as error:
            fail(place, error)
        if not ids:
            continue
        if options.end_of_document is not None:
            ids = ids + [options.end_of_document]
        if not 0 <= min(ids) <= max(ids) < 1 << 31:
            fail(place, "ids must be from 0 to 2^31 - 1")
        sequences.append(ids)
    if not sequences:
        sys.exit("prepare_tokens.py: there are no tokens in these files")
    try:
        tokens, largest = write_pair(options.out, sequences)
    except OSError as error:
        fail(error.filename or options.out, error.strerror)
    print(f"{len(sequences)} documents, {tokens} tokens, the largest {largest}: {options.out}.bin, {options.out}.idx")


if __name__ == "__main__":
    main()
