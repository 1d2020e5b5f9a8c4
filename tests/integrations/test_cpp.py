"""`granule/cuda_resource.hpp` with the real headers of CCCL and RMM."""
import re
import subprocess

import pytest
from conftest import ROOT


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_a_resource_of_cccl(compiled, standard):
    assert compiled("resource", standard)() == "fine\n"


def test_rmm_takes_the_resource(compiled):
    assert compiled("rmm", "c++20", with_rmm=True)() == "fine\n"


def test_the_lines_of_the_book_compile(compiled, tmp_path):
    (printed,) = re.findall(r"^```cpp\n(.*?)^```", (ROOT / "docs/integrations.md").read_text(), re.MULTILINE | re.DOTALL)
    headers, lines = printed.split("\n\n", 1)
    source = tmp_path / "printed.cpp"
    source.write_text(f"{headers}\nvoid printed(cuda::stream_ref stream) {{\n{lines}}}\nint main() {{}}\n")
    compiled("printed", "c++20", with_rmm=True, source=source)


def test_a_cccl_that_is_too_old_is_named(compiled, tmp_path, capfd):
    """What is found and what fits, before anything else is compiled."""
    (tmp_path / "cuda/std").mkdir(parents=True)
    (tmp_path / "cuda/std/version").write_text("#define CCCL_VERSION 3001004\n")
    with pytest.raises(subprocess.CalledProcessError):
        compiled("resource", "c++17", headers=[tmp_path])
    said = capfd.readouterr().err
    assert "this CCCL has CCCL_VERSION 3001004" in said
    assert "needs CCCL 3.2 or later" in said
