#!/usr/bin/env bash
# Builds the fake NVIDIA libraries into $OUT (default: target/fakegpu of this repository).
# Needs g++, python3, binutils, and a venv with the CUDA wheel of torch in it, whose headers and symbol lists are
# used: TORCH_VENV=/path/to/venv ./build.sh, or TORCH_SITE=/path/to/site-packages ./build.sh
# DRIVER is the simulated libcuda.so.1; without it, this repository's is built with cargo.
# WATCHER=1 also builds what `granule estimate` records with, against the headers of that torch.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fail() { echo "build.sh: $*" >&2; exit 1; }

for tool in "${CXX:-g++}" gcc nm "${PYTHON:-python3}" xargs; do
  command -v "$tool" >/dev/null || fail "$tool is missing: install g++, binutils, python3 and findutils"
done
site=${TORCH_SITE:-}
if [ -z "$site" ]; then
  [ -n "${TORCH_VENV:-}" ] || fail "set TORCH_VENV to a venv with the CUDA build of torch"
  site=$(echo "$TORCH_VENV"/lib/python3*/site-packages)
  [ -d "$site" ] || fail "$TORCH_VENV is no venv: it has no lib/python3*/site-packages"
fi
[ -d "$site/torch" ] || fail "no torch in $site: pip install torch (the CUDA build) there"
nv=$site/nvidia
header=$(ls "$nv"/cu1*/include/cuda.h "$nv"/cuda_runtime/include/cuda.h 2>/dev/null | head -1 || true)
[ -n "$header" ] || fail "no CUDA headers in $nv: this torch is not the CUDA build from pip, which brings NVIDIA's wheels"
cu=$(dirname "$header")
# The one library of this name in the wheels; their directory differs by CUDA version.
wheel_library() {
  local found
  found=$(find "$nv" -name "$1.so.[0-9]*" | sort | head -1)
  [ -n "$found" ] || fail "no $1 in $nv: reinstall torch with its nvidia-* wheels"
  echo "$found"
}

out=${OUT:-$here/../../../../target/fakegpu}
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
mkdir -p "$out" "$tmp/lib"
# CUDA 12 wheels keep each library's headers in a folder of its own.
CXXFLAGS="-std=c++17 -O2 -fPIC -w -I$here/src -I$cu -I$nv/cublas/include -I$nv/cudnn/include"
symbols() { nm -D --defined-only "$1" | awk '$2=="T"{print $3}' | sed 's/@.*//' | sort -u; }
# objects NAME...: src/NAME.cpp, or src/NAME.cpp:FLAG:OBJECT
objects() {
  printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c '
    IFS=: read -r name flag object <<<"{}"
    '"${CXX:-g++} $CXXFLAGS"' $flag -c "'"$here"'/src/$name.cpp" -o "'"$tmp"'/${object:-$name}.o"' ||
    fail "the compiler refused a file"
}
# library SONAME VERSION_NODE WANTED_LIST STUB_ANSWER LDFLAGS NAME...: objects, and stubs for the rest
library() {
  local soname=$1 node=$2 want=$3 answer=$4 ldflags=$5; shift 5
  local files=("${@/#/$tmp/}"); files=("${files[@]/%/.o}")
  nm --defined-only "${files[@]}" | awk '$2=="T"{print $3}' | sort -u >"$tmp/have"
  "${PYTHON:-python3}" "$here/src/mkstubs.py" "$tmp/stubs.c" "$tmp/have" "$want" "$answer"
  gcc -O1 -fPIC -w -c "$tmp/stubs.c" -o "$tmp/stubs.o"
  local version=()
  if [ -n "$node" ]; then echo "$node { global: *; };" >"$tmp/v.map"; version=(-Wl,--version-script="$tmp/v.map"); fi
  "${CXX:-g++}" -shared -o "$tmp/lib/$soname" -Wl,-soname,"$soname" "${version[@]}" "${files[@]}" "$tmp/stubs.o" $ldflags
}

driver=${DRIVER:-}
if [ -z "$driver" ]; then
  repository=$here/../../../..
  driver=$(cd "$repository" && cargo build --quiet --package lookalike-cuda --message-format=json-render-diagnostics |
    grep -oE '"[^"]*liblookalike_cuda\.so"' | tail -1 | tr -d '"')
  [ -n "$driver" ] || fail "the simulated driver was not built"
fi
cp "$driver" "$tmp/lib/libcuda.so.1"
runtime=(runtime_device runtime_memory runtime_streams runtime_kernels)
objects "${runtime[@]}" nvml cudnn cublas "cublas:-DFAKE_LT:cublas_lt"
over_driver="-L$tmp/lib -l:libcuda.so.1 -Wl,-rpath,\$ORIGIN"
: >"$tmp/nvml.want"
library libnvidia-ml.so.1 "" "$tmp/nvml.want" 0 "$over_driver" nvml

cudart=$(wheel_library libcudart); symbols "$cudart" >"$tmp/cudart.want"; cudart=$(basename "$cudart")
library "$cudart" "$cudart" "$tmp/cudart.want" 801 "$over_driver -ldl" "${runtime[@]}"
for pair in libcublasLt:cublas_lt libcublas:cublas libcudnn:cudnn; do
  real=$(wheel_library "${pair%:*}"); symbols "$real" >"$tmp/want"; real=$(basename "$real")
  library "$real" "$real" "$tmp/want" 0 "" "${pair#*:}"
done
"${CXX:-g++}" $CXXFLAGS -shared "$here/src/recorder.cpp" -o "$tmp/lib/librecorder.so" -L"$tmp/lib" -l:"$cudart" -Wl,-rpath,\$ORIGIN
if [ -n "${WATCHER:-}" ]; then
  "${CXX:-g++}" -std=c++20 -O1 -fPIC -fvisibility=hidden -w -shared "$here/watcher/watcher.cpp" -o "$tmp/lib/libgranule_watcher.so" \
    -I"$here/src" -I"$site/torch/include" -I"$cu" -L"$site/torch/lib" -lc10 -lc10_cuda -L"$tmp/lib" -l:"$cudart" ||
    fail "the recorder does not compile against the torch in $site"
fi
# One after the other into place, so that a program that starts meanwhile finds whole files.
for file in "$tmp"/lib/*; do cp "$file" "$out/.new" && mv "$out/.new" "$out/$(basename "$file")"; done
echo "built in $out: $(cd "$out" && echo lib*)"
