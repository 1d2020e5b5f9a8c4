#!/usr/bin/env bash
# selftest.py in every configuration of the rig; needs TORCH_VENV. Ends with 1 where one fails.
set -u
here=$(cd "$(dirname "$0")" && pwd)
failed=0
try() {
  local said
  if said=$(env "$@" "$here/../../crates/tools/granule-estimate/rig/fakegpu-run" "$here/selftest.py" 2>&1); then echo "ok   $*"
  else echo "FAIL $*"; tail -15 <<<"$said"; failed=1; fi
}
expandable=PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
try FAKE_GPU_COUNT=1
try "$expandable"
try FAKE_GPU_COUNT=2 FAKE_GPU_BYTES=1
try FAKE_GPU_BYTES=1 "$expandable"
try FAKE_GPU_EVENT_LAG=20
exit $failed
