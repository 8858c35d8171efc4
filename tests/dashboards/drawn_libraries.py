#!/usr/bin/env python3
"""Makes the page with which drawn_test.py draws the dashboards: drawn_libraries.py FOLDER. npm fetches the libraries
(about 360 MB) once. Exit code 77 and a reason if they cannot be fetched."""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import program  # noqa: E402
from libraries import Unavailable, fetch  # noqa: E402

SOURCES = pathlib.Path(__file__).resolve().parent / "drawn"
FETCHED = 600  # seconds in which npm must fetch the libraries
FONTS = {"Regular": "inter-latin-400-normal.woff2", "Medium": "inter-latin-500-normal.woff2"}
BUNDLE = ("page.tsx", "--bundle", "--jsx=automatic", "--minify", "--outfile=site/page.js", "--log-level=error",
          '--define:process.env.NODE_ENV="production"')


def digest():
    whole = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    for path in sorted(SOURCES.iterdir()):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()


def build(folder):
    """Makes folder/site: the page with everything that it loads, except the dashboards and settings.json."""
    made = folder / "digest"
    if made.exists() and made.read_text() == digest():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        fetch(SOURCES, work, FETCHED)
        work = pathlib.Path(work)
        modules = work / "node_modules"
        done = subprocess.run([modules / ".bin/esbuild", *BUNDLE], cwd=work, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"the page cannot be bundled:\n{done.stderr}")
        shutil.copy(work / "page.html", work / "site")
        shutil.copytree(modules / "@grafana/ui/dist/public", work / "site/public/build")
        fonts = work / "site/public/fonts/inter"
        fonts.mkdir(parents=True)
        for weight, name in FONTS.items():
            shutil.copy(modules / "@fontsource/inter/files" / name, fonts / f"Inter-{weight}.woff2")
        shutil.copytree(work / "site", folder / "site")
    made.write_text(digest())


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: drawn_libraries.py FOLDER")
    try:
        build(pathlib.Path(sys.argv[1]).resolve())
    except Unavailable as reason:
        program.tell(reason)
        sys.exit(program.SKIPPED)


if __name__ == "__main__":
    main()
