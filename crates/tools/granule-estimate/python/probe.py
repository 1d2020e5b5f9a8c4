"""Says which PyTorch this Python would import, without importing it."""

import importlib.util
import json
import os
import runpy
import sys

found = {"python": sys.executable}
spec = importlib.util.find_spec("torch")
if spec is not None and spec.submodule_search_locations:
    folder = next(iter(spec.submodule_search_locations))
    said = runpy.run_path(os.path.join(folder, "version.py"))
    found["torch"] = {"site": os.path.dirname(folder), "version": said["__version__"], "cuda": said.get("cuda"), "hip": said.get("hip")}
print("\n" + json.dumps(found))
