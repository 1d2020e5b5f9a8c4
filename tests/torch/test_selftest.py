"""A release that nobody tested: the self-test, its answer that is kept, and who goes on without it."""
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from observe import MIB, error, native_works, raw
from scene import DEFAULT, GRANULE, scene

RUNS = (DEFAULT,)
ALONE = dict(alone=True, install=False, allocators=(GRANULE,))


def as_untested(folder):
    """This release counts as one that nobody tested; what the self-test says is kept in the file of the folder."""
    from granule_torch import _enable, _shim

    _enable.TESTED = ((2, 8), (2, 9))
    file = Path(folder, "selftest.json")
    _shim.selftest_answer = lambda *_: file
    return file


def one_figure_more(observed):
    """The self-test finds one difference."""

    def differing(allocator, backend):
        answers = observed("native", backend)
        answers["statistics"][1]["num_ooms"] += allocator == "granule"
        return answers

    return differing


def tried(*_):
    raise AssertionError("it was tried again")


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught if "granule" in str(warning.message).lower()]


@scene(env={"GRANULE_TORCH_UNTESTED": "1"}, **ALONE)
def test_a_release_that_nobody_tested_is_used_once_the_self_test_passes():
    import granule_torch

    with tempfile.TemporaryDirectory() as folder:
        file = as_untested(folder)
        said = warned(granule_torch.enable)
        assert file.is_file()
    assert len(said) == 2 and "no effect any more" in said[0] and "self-test passes" in said[1], said
    assert granule_torch.is_enabled() and not torch.cuda.is_initialized()
    kept = raw(3 * MIB)
    assert torch.cuda.memory_allocated() == kept.numel()


@scene(**ALONE)
def test_a_release_that_has_passed_is_not_tried_again():
    """Nor warned of again; the report says it."""
    import granule_torch
    from granule_torch import _selftest

    with tempfile.TemporaryDirectory() as folder:
        _selftest._keep(as_untested(folder), "")
        _selftest._observed = tried
        assert warned(granule_torch.enable) == []
    assert granule_torch.is_enabled()
    kept = raw(5)
    assert "its self-test passes there" in granule_torch.report() and kept.numel()


@scene(**ALONE)
def test_refused_on_a_release_whose_self_test_fails():
    import granule_torch
    from granule_torch import _selftest

    executable = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        file = as_untested(folder)
        sys.executable = "/bin/false"
        said = error(granule_torch.enable)
        assert "CannotEnable" in said and "ended early with the allocator native" in said and "ANYWAY=1 goes on" in said, said
        assert not file.exists()
        sys.executable = executable
        _selftest._observed = one_figure_more(_selftest._observed)
        said = error(granule_torch.enable)
        assert "part 'statistics'" in said and "1 num_ooms: 0 and 1" in said and "left in place" in said, said
        # Other processes need not try again, and are told how to.
        _selftest._observed = tried
        assert error(granule_torch.enable) == said and f"remove {file} to have it tried again" in said, said
        assert "GRANULE_TORCH_ANYWAY=1 goes on all the same" in said
        file.unlink()
        assert "it was tried again" in error(granule_torch.enable)
    assert not granule_torch.is_enabled() and native_works()


@scene(env={"GRANULE_TORCH_ANYWAY": "1"}, **ALONE)
def test_a_program_goes_on_anyway_and_says_what_differs():
    import granule_torch
    from granule_torch import _selftest

    with tempfile.TemporaryDirectory() as folder:
        _selftest._keep(as_untested(folder), "one figure is another")
        (said,) = warned(granule_torch.enable)
    assert "GRANULE_TORCH_ANYWAY=1" in said and "one figure is another" in said, said
    kept = raw(3 * MIB)
    assert torch.cuda.memory_allocated() == kept.numel() and said in granule_torch.report()


@scene(env={"GRANULE_TORCH_ANYWAY": "1"}, **ALONE)
def test_a_program_goes_on_anyway_where_nothing_could_be_tried():
    import granule_torch

    with tempfile.TemporaryDirectory() as folder:
        as_untested(folder)
        sys.executable = "/bin/false"
        (said,) = warned(granule_torch.enable)
    assert "ended early with the allocator native" in said and granule_torch.is_enabled(), said


def answered(file):
    """What the self-test of this file's build says, and whether it was run for that, which finds nothing."""
    from granule_torch import _selftest

    observed = _selftest._observed
    _selftest._observed = lambda *_: {part.__name__: 0 for part in _selftest.PARTS}
    try:
        return _selftest.answer("cuda", file)
    finally:
        _selftest._observed = observed


def test_an_answer_is_kept_for_others():
    from granule_torch import _selftest

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "torch-2.99", "selftest.json")
        # Where files are for a group by default, this one is not.
        umask = os.umask(0o002)
        try:
            assert answered(file) == ("", True) and answered(file) == ("", False)
        finally:
            os.umask(umask)
        _selftest._keep(file, "a figure")
        assert answered(file) == ("a figure", False)
        assert sorted(found.name for found in file.parent.iterdir()) == ["selftest.json", "selftest.lock"]


def test_an_answer_that_is_damaged_or_foreign_is_not_believed():
    from granule_torch import _selftest

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "torch-2.99", "selftest.json")
        file.parent.mkdir()

        def spoilt(spoil):
            """Whether a kept refusal is tried again once this was done to it; what is kept then is in order."""
            _selftest._keep(file, "a figure")
            spoil()
            return answered(file) == ("", True) and answered(file) == ("", False)

        _selftest._keep(file, "a figure")
        whole = file.read_text()
        no_text = '{"build": "torch-2.99/selftest.json", "differs": 3}'
        for text in ("", whole[:-5], "[]", "[" * 60_000, "\xff", no_text, whole.replace("2.99", "2.98")):
            assert spoilt(lambda: file.write_text(text, encoding="latin-1")), text[:99]
        for mode in (0o620, 0o602):
            assert spoilt(lambda: file.chmod(mode)), mode

        def link():
            file.rename(file.with_name("elsewhere"))
            file.symlink_to("elsewhere")

        def pipe():
            file.unlink()
            os.mkfifo(file, 0o600)

        assert spoilt(link) and spoilt(pipe)
        if os.geteuid() == 0:
            assert spoilt(lambda: os.chown(file, 65534, -1))


@scene(**ALONE)
def test_an_answer_is_about_one_build_one_release_and_one_backend():
    from granule_torch import _library, _selftest, _shim

    with tempfile.TemporaryDirectory() as folder:
        os.environ["GRANULE_TORCH_CACHE"] = folder
        first = _shim.selftest_answer("cuda", "cuda")
        assert _shim.selftest_answer("cuda", "cuda") == first
        torch.__version__, kept = "2.99.0", torch.__version__
        others = [_shim.selftest_answer("cuda", "cuda")]
        torch.__version__ = kept
        others.append(_shim.selftest_answer("cuda", "hip"))
        copy = Path(folder, "libgranule_capi.so")
        shutil.copyfile(_library.path(), copy)
        library = _library.load()
        library._name = str(copy)
        others.append(_shim.selftest_answer("cuda", "cuda"))
        os.utime(copy, ns=(0, 0))
        others.append(_shim.selftest_answer("cuda", "cuda"))
        assert len({first, *others}) == 5
        # Nor can it be moved to another place.
        first.parent.mkdir()
        for other in others:
            _selftest._keep(first, "a figure")
            other.parent.mkdir(exist_ok=True)
            first.rename(other)
            assert answered(other) == ("", True)


@scene(**ALONE)
def test_the_self_test_knows_who_served_it():
    """Equal answers of two processes that both ran PyTorch's own allocator would prove nothing."""
    import granule_torch
    from granule_torch import _selftest

    _selftest._served_by("native")
    assert "not PyTorch's allocator" in error(_selftest._served_by, "granule")
    granule_torch.enable()
    assert "was to run PyTorch's own" in error(_selftest._served_by, "native")
    assert "asks another allocator" in error(_selftest._served_by, "granule")
    kept = raw(5)
    _selftest._served_by("granule")
    del kept


@scene(**ALONE)
def test_a_shim_that_does_not_compile_is_told_as_it_is():
    import granule_torch
    from granule_torch import GranuleError, _selftest, _shim

    def broken(*_, **__):
        raise GranuleError("The C++ shim cannot be built: error: no member named 'x'")

    with tempfile.TemporaryDirectory() as folder:
        as_untested(folder)
        _shim.build = _selftest.answer = broken
        said = error(granule_torch.enable)
    assert "no member named 'x'" in said and "left in place" in said, said
    assert not granule_torch.is_enabled() and native_works()


@scene(**ALONE)
def test_a_self_test_without_a_folder_for_its_result_still_counts():
    import granule_torch

    as_untested("/dev/null/none")
    assert len(warned(granule_torch.enable)) == 1
    assert granule_torch.is_enabled()


@scene(env={"GRANULE_TORCH_SELFTEST": "1"}, **ALONE)
def test_nothing_enables_granule_within_the_self_test():
    import granule_torch

    assert "part of granule_torch's self-test" in error(granule_torch.enable)


@scene(env={"GRANULE_TORCH_STRICT": "1"}, **ALONE)
def test_a_strict_program_refuses_what_nobody_tested():
    import granule_torch

    as_untested("/nonexistent")
    said = error(granule_torch.enable)
    assert "torch 2.8 and 2.9," in said and "GRANULE_TORCH_STRICT=1 allows no other" in said and "left in place" in said, said
    os.environ["GRANULE_TORCH_ANYWAY"] = "1"
    said = error(granule_torch.enable)
    assert "GRANULE_TORCH_STRICT=1 refuses that, and GRANULE_TORCH_ANYWAY=1 wants it: remove one" in said, said
    assert not granule_torch.is_enabled() and native_works()
