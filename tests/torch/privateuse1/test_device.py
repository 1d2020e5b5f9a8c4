"""Devices: which there are, which is current, and for whom."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import accelerator


def test_it_is_the_accelerator() -> None:
    assert accelerator.is_available()
    assert accelerator.current_accelerator() == torch.device("granule")
    assert accelerator.device_count() == torch.granule.device_count() >= 1
    assert torch.granule.get_device_name().strip()
    assert torch._C._get_privateuse1_backend_name() == "granule"


def test_capability_is_that_of_all_devices() -> None:
    capability = accelerator.get_device_capability()
    assert {torch.float32, torch.bfloat16, torch.int64} <= set(capability["supported_dtypes"])
    assert all(accelerator.get_device_capability(i) == capability for i in range(accelerator.device_count()))


def test_switching(second_device: str) -> None:
    accelerator.set_device_index(1)
    assert accelerator.current_device_index() == 1
    assert torch.empty(3, device="granule").device == torch.device(second_device)
    torch.granule.set_device("granule:0")
    assert torch.granule.current_device() == 0
    with torch.granule.device(1):
        assert accelerator.current_device_index() == 1
        with torch.granule.device(None):
            assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 0


def test_it_is_restored_after_errors(second_device: str) -> None:
    with pytest.raises(ZeroDivisionError), torch.granule.device(second_device):
        try:
            with torch.granule.device(0):
                raise ValueError
        except ValueError:
            assert accelerator.current_device_index() == 1
        1 / 0
    assert accelerator.current_device_index() == 0


def test_operators_leave_it_alone(second_device: str) -> None:
    other = torch.ones(4, device=second_device)
    (other + 1).sum().item()
    other.resize_(1000)
    torch.ones(2).to(second_device).cpu()
    assert accelerator.current_device_index() == 0


@pytest.mark.parametrize("index", [64, 100])
def test_a_device_that_is_not_there(index: int) -> None:
    with pytest.raises(RuntimeError, match="The device index is out of range"):
        accelerator.set_device_index(index)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.empty(1, device=f"granule:{index}")
    with pytest.raises(RuntimeError):
        accelerator.memory_stats(index)
    assert accelerator.current_device_index() == 0


def test_threads_have_their_own(second_device: str) -> None:
    failures: list[str] = []

    def switch(thread: int) -> None:
        for i in range(50):
            device = (thread + i) % 2
            accelerator.set_device_index(device)
            tensor = torch.empty(10, device="granule")
            if accelerator.current_device_index() != device or tensor.device.index != device:
                failures.append(f"thread {thread} saw another thread's device")

    threads = [threading.Thread(target=switch, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert accelerator.current_device_index() == 0


def test_copies_between_devices(second_device: str) -> None:
    here = torch.arange(1000.0, device="granule:0")
    there = here.to(second_device)
    assert there.device == torch.device(second_device)
    assert there.data_ptr() != here.data_ptr()
    assert torch.equal(there.cpu(), here.cpu())
    there.add_(1)
    here.copy_(there)
    assert here[-1].item() == 1000
    assert torch.equal(here[::2].to(second_device).cpu(), there.cpu()[::2])
    assert torch.equal(there.to("granule:0", torch.int32).cpu(), there.cpu().int())


def test_devices_have_memory_of_their_own(second_device: str) -> None:
    tensors = [torch.empty(1000, device=f"granule:{i % 2}") for i in range(20)]
    assert [tensor.device.index for tensor in tensors] == [i % 2 for i in range(20)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 20
    # A free gives the block back to its own device, whatever device is current.
    address = tensors[1].data_ptr()
    tensors[1] = None
    assert torch.empty(1000, device=second_device).data_ptr() == address


def test_a_second_enable() -> None:
    from granule_torch import privateuse1

    assert privateuse1.enable("openreg", "granule") is torch.granule
    with pytest.raises(RuntimeError, match="enabled already"):
        privateuse1.enable("openreg", "other")


def test_a_fork_is_refused_in_words(program) -> None:
    said = program("""
        import os, sys, torch
        import granule_torch.privateuse1
        granule_torch.privateuse1.enable("openreg")
        held = torch.ones(3, device="granule")
        child = os.fork()
        if child == 0:
            assert torch.granule._is_in_bad_fork()
            try:
                torch.empty(1 << 20, device="granule")
            except RuntimeError as error:
                print(error, flush=True)
            del held
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert held.sum().item() == 3
    """)
    assert "fork" in said


def test_a_spawned_child_has_its_own(program) -> None:
    program("""
        import torch, torch.multiprocessing as mp
        import granule_torch.privateuse1

        def work(queue):
            granule_torch.privateuse1.enable("openreg")
            queue.put(torch.ones(3, device="granule").sum().item())

        if __name__ == "__main__":
            granule_torch.privateuse1.enable("openreg")
            torch.ones(3, device="granule")
            context = mp.get_context("spawn")
            queue = context.Queue()
            child = context.Process(target=work, args=(queue,))
            child.start()
            assert queue.get(timeout=100) == 3
            child.join()
            assert child.exitcode == 0
    """)


def test_a_backend_that_does_not_start(program) -> None:
    said = program("""
        import granule_torch.privateuse1
        try:
            granule_torch.privateuse1.enable("no-such-backend")
        except RuntimeError as error:
            print(error)
    """)
    assert "no-such-backend" in said and "openreg" in said
