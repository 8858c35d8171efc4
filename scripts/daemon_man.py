#!/usr/bin/env python3
"""Writes the manual page of a daemon from the output of its --help: daemon_man.py PROGRAM > PAGE."""

import pathlib
import re
import subprocess
import sys


# The page shows these words as defaults of flags whose real default depends on the machine where the page is made.
OF_THE_MACHINE = {"--node": "the machine's name", "--rank-binary": "beside the program"}


def roff(text):
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))


def page(name, text):
    head, _, flags = text.partition("\n\n")
    match = re.fullmatch(rf"{re.escape(name)} (\S+): (.+)", head)
    if match is None:
        raise ValueError(f"{name} --help begins with '{head}', not with its version and purpose")
    version, purpose = match.groups()
    lines = [f'.TH "{name.upper()}" 1 "" "lynx {version}" "Lynx"', ".SH NAME", f"{roff(name)} \\- {roff(purpose)}",
             ".SH SYNOPSIS", f".B {roff(name)}", "[\\fIOPTION\\fR]...", ".SH OPTIONS", "What stands in brackets is the default."]
    for line in flags.splitlines():
        flag = re.fullmatch(r"  (--[a-z-]+)( VALUE)? +(\S.*)", line)
        if flag is None:
            if line.strip() != "--help, --version":
                raise ValueError(f"{name} --help has a line that is no flag: '{line}'")
            lines += [".TP", f".B {roff('--help')}\\fR, \\fB{roff('--version')}", "print this or the version, and end"]
            continue
        value = " \\fIVALUE\\fR" if flag[2] else ""
        meaning = flag[3]
        if flag[1] in OF_THE_MACHINE:
            meaning = re.sub(r"\[[^\]]*\]$", f"[{OF_THE_MACHINE[flag[1]]}]", meaning)
        lines += [".TP", f".B {roff(flag[1])}{value}", roff(meaning)]
    lines += [".SH SEE ALSO", f".BR lynxctl (1), /etc/default/{roff(name)}"]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: daemon_man.py PROGRAM")
    program = pathlib.Path(sys.argv[1])
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    sys.stdout.write(page(program.name, text))


if __name__ == "__main__":
    main()
