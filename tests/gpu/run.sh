#!/usr/bin/env bash
# The kit on the machine with the GPU: unpacks itself beside nothing of yours, runs, leaves at most 8 files in $OUT (default: out).
#   bash run.sh [--plan main|more] [--seconds 480]
# KIT_PYTHON names a Python with torch; without it, the first one that is found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export OUT=${OUT:-$PWD/out}
kit=$(cd "$(mktemp -d)" && pwd -P)
tar -xzf "$here/kit.tar.gz" -C "$kit" || { echo "run.sh: $here/kit.tar.gz does not unpack: copy the whole folder again" >&2; exit 1; }
has_torch() { "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; }
python=${KIT_PYTHON:-}
if [ -z "$python" ]; then
  for python in python3 python /opt/*/bin/python3 /opt/*/.venv/bin/python3 python3; do has_torch "$python" && break; done
fi
command -v "$python" >/dev/null || { echo "run.sh: there is no $python: install Python 3.9 or later, or name one in KIT_PYTHON" >&2; exit 1; }
# What torch compiles with is beside its Python, or in the toolkit.
PATH="$(dirname "$(command -v "$python")"):$PATH:/usr/local/cuda/bin" KIT_UNPACKED=$kit exec "$python" "$kit/src/drive.py" "$@"
