#!/usr/bin/env bash
# The kit on the machine with the GPU: unpacks itself beside nothing of yours, runs, leaves at most 8 files in $OUT (default: out).
#   bash run.sh [--plan main|more] [--seconds 480]
# KIT_PYTHON names a Python with torch; without it, the first one that is found.
set -euo pipefail
fails() { echo "run.sh: $*" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
made_on=$(cat "$here/ARCH") || fails "copy the whole folder again: it has no ARCH"
[ "$made_on" = "$(uname -m)" ] || fails "the kit is for $made_on, and this machine is $(uname -m): make the kit on such a machine"
has_torch() { "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; }
python=${KIT_PYTHON:-}
if [ -z "$python" ]; then
  for python in python3 python /opt/*/bin/python3 /opt/*/.venv/bin/python3 python3; do has_torch "$python" && break; done
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || fails "$python is no Python 3.9 or later: install one, or name one in KIT_PYTHON"
export OUT=${OUT:-$PWD/out}
mkdir -p "$OUT" && [ -w "$OUT" ] || fails "results cannot go to $OUT: name another folder in OUT"
kit=$(cd "$(mktemp -d)" && pwd -P)
trap 'rm -rf "$kit"' EXIT
tar -xzf "$here/kit.tar.gz" -C "$kit" || fails "$here/kit.tar.gz does not unpack: copy the whole folder again"
# What torch compiles with is beside its Python, or in the toolkit. A signal is the program's: it ends its steps and writes the page.
PATH="$(dirname "$(command -v "$python")"):$PATH:/usr/local/cuda/bin" "$python" "$kit/src/drive.py" "$@" &
trap 'kill -TERM $! 2>/dev/null' TERM INT HUP
ended=0; wait $! || ended=$?
while kill -0 $! 2>/dev/null; do wait $! || ended=$?; done
exit $ended
