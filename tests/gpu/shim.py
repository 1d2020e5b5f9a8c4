"""Compiles granule_torch's C++ shim for the torch that is here: shim.py FOLDER

It lies there as a package has it, in a folder named after the release and the sources."""
import shutil
import sys
import tempfile
import time
from pathlib import Path

import common
from common import say


def body():
    start = time.perf_counter()
    import torch
    from granule_torch import _build, _library

    # The builder loads what it has built, and that wants the library.
    _library.load()
    into = Path(sys.argv[1]) / _build.key(_build.sources_of("cuda"), str(torch.__version__))
    with tempfile.TemporaryDirectory() as folder:
        built = _build.compile_shim("cuda", Path(folder), cuda=True)
        into.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built, into)
    say(step="compile", seconds=round(time.perf_counter() - start, 1), torch=torch.__version__, headers=_build.cuda_headers())


if __name__ == "__main__":
    common.main(body)
