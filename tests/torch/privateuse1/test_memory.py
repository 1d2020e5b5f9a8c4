"""Tensors on the device: made, copied, viewed, resized, freed."""

from __future__ import annotations

import pytest
import torch

from .support import MIB


@pytest.mark.parametrize("shape", [(100,), (10_000,), (3, 4, 5), (), (0,), (2, 0, 3)])
def test_sizes(shape: tuple[int, ...]) -> None:
    tensor = torch.empty(shape, device="granule")
    assert tensor.shape == shape
    assert tensor.device == torch.device("granule:0")
    assert (tensor.data_ptr() == 0) == (tensor.numel() == 0)
    assert tensor.untyped_storage().nbytes() == tensor.numel() * 4
    assert tensor.untyped_storage().device == torch.device("granule:0")


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16, torch.complex64]
)
def test_round_trip(dtype: torch.dtype) -> None:
    host = (torch.arange(1000) % 7).to(dtype)
    device = host.to("granule")
    assert torch.equal(device.cpu(), host)
    assert torch.equal(device.clone().cpu(), host)
    assert device.clone().data_ptr() != device.data_ptr()


def test_a_freed_block_is_used_again() -> None:
    first = torch.empty(1000, device="granule")
    address = first.data_ptr()
    del first
    assert torch.empty(1000, device="granule").data_ptr() == address


def test_conversion_on_the_way() -> None:
    host = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    assert torch.equal(host.to("granule", torch.int64).cpu(), host.long())
    assert torch.equal(host.to("granule").to(torch.float16).cpu(), host.half())
    assert torch.equal(host.to("granule").to("cpu", torch.float64), host.double())


def test_layouts() -> None:
    host = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
    last = host.to("granule").contiguous(memory_format=torch.channels_last)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last.cpu(), host)
    assert torch.equal(last.contiguous().cpu(), host)
    assert torch.equal(host.to("granule").transpose(1, 2).cpu(), host.transpose(1, 2))
    assert torch.equal(host.to("granule")[:, 1:, ::2].cpu(), host[:, 1:, ::2])
    assert torch.equal(host[0].to("granule").expand(2, 3, 4, 5).cpu(), host[0].expand(2, 3, 4, 5))


def test_a_copy_into_a_slice_leaves_the_gaps_alone() -> None:
    device = torch.zeros(6, 8, device="granule")
    device[1:4, ::3] = torch.arange(1.0, 10.0).reshape(3, 3)
    device[:, 1] = 7
    device[5].copy_(torch.arange(8.0, device="granule"))
    expected = torch.zeros(6, 8)
    expected[1:4, ::3] = torch.arange(1.0, 10.0).reshape(3, 3)
    expected[:, 1] = 7
    expected[5] = torch.arange(8.0)
    assert torch.equal(device.cpu(), expected)


def test_a_copy_broadcasts() -> None:
    device = torch.empty(3, 4, device="granule")
    device.copy_(torch.arange(4.0))
    assert torch.equal(device.cpu(), torch.arange(4.0).expand(3, 4))
    device.copy_(torch.arange(3.0, device="granule")[:, None])
    assert torch.equal(device.cpu(), torch.arange(3.0)[:, None].expand(3, 4))


def test_conjugated_and_negated_views() -> None:
    host = torch.complex(torch.arange(4.0), torch.arange(4.0) + 1)
    device = host.to("granule")
    assert torch.equal(device.conj().cpu(), host.conj())
    assert torch.equal(device.conj().imag.cpu(), host.conj().imag)
    target = torch.empty(4, dtype=torch.complex64, device="granule")
    target.conj().copy_(host)
    assert torch.equal(target.cpu(), host.conj())
    assert torch.equal(torch.view_as_real(device).cpu(), torch.view_as_real(host))


def test_views_share_memory() -> None:
    base = torch.zeros(100, device="granule")
    view = base.view(10, 10)
    part = base[20:30]
    assert view.data_ptr() == base.data_ptr()
    assert part.numel() == 10
    assert part.data_ptr() == base.data_ptr() + 80
    view[2].fill_(3)
    assert part.cpu().tolist() == [3.0] * 10
    assert base.view(torch.int32).data_ptr() == base.data_ptr()
    assert base.unfold(0, 10, 5).data_ptr() == base.data_ptr()
    assert view.view_as(base.reshape(10, 10)).add_(1).sum().item() == 130


def test_in_place_keeps_the_address() -> None:
    tensor = torch.ones(50, device="granule")
    address = tensor.data_ptr()
    tensor.add_(2).mul_(3)
    assert tensor.data_ptr() == address
    assert tensor.cpu().tolist() == [9.0] * 50


def test_resize() -> None:
    tensor = torch.arange(100.0, device="granule")
    tensor.resize_(50)
    assert tensor.cpu().tolist() == list(range(50))
    tensor.resize_(100)
    assert tensor.cpu().tolist() == list(range(100))
    tensor.resize_(10_000)
    assert tensor[:100].cpu().tolist() == list(range(100))
    tensor.untyped_storage().resize_(400)
    assert tensor.untyped_storage().nbytes() == 400
    tensor.untyped_storage().resize_(0)
    assert torch.accelerator.memory_allocated() == 0


def test_set() -> None:
    source = torch.arange(10.0, device="granule")
    target = torch.empty(0, device="granule")
    target.set_(source)
    assert target.data_ptr() == source.data_ptr() and target.is_set_to(source)
    target.set_(source.untyped_storage(), 4, (2, 3), (3, 1))
    assert target.cpu().tolist() == [[4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
    target.set_()
    assert target.numel() == 0 and target.device.type == "granule"


def test_a_tensor_takes_the_data_of_another() -> None:
    first, second = torch.ones(3, device="granule"), torch.zeros(5, device="granule")
    addresses = first.data_ptr(), second.data_ptr()
    first.data, second.data = second.data, first.data
    assert (second.data_ptr(), first.data_ptr()) == addresses
    assert first.shape == (5,) and second.cpu().tolist() == [1.0] * 3


def test_storages() -> None:
    storage = torch.arange(4.0, device="granule").untyped_storage()
    assert storage.cpu().tolist() == torch.arange(4.0).untyped_storage().tolist()
    copy = storage.clone()
    assert copy.data_ptr() != storage.data_ptr()
    assert copy.cpu().tolist() == storage.cpu().tolist()


def test_files(tmp_path) -> None:
    device = torch.arange(4.0, device="granule")
    torch.save(device, tmp_path / "tensor.pt")
    back = torch.load(tmp_path / "tensor.pt")
    assert back.device == device.device and torch.equal(back.cpu(), device.cpu())
    assert torch.load(tmp_path / "tensor.pt", map_location="cpu").device.type == "cpu"


def test_generated_methods() -> None:
    tensor = torch.ones(2).granule()
    assert tensor.is_granule and tensor.device.type == "granule"
    assert next(torch.nn.Linear(2, 2).granule().parameters()).is_granule


@pytest.mark.parametrize("count", [1000])
def test_nothing_leaks(count: int) -> None:
    for i in range(count):
        tensor = torch.empty(64 + i, device="granule")
        view = tensor[3:]
        if i % 10 == 0:
            view.add_(1)
            assert tensor.cpu().shape == tensor.shape
    held = [torch.empty(1000, device="granule", requires_grad=True) for _ in range(100)]
    loss = sum((t * 2).sum() for t in held[:5])
    loss.backward()
    del tensor, view, held, loss
    assert torch.accelerator.memory_allocated() == 0
    large = torch.empty(50 * MIB, dtype=torch.uint8, device="granule")
    assert large.numel() == 50 * MIB


def test_random_numbers() -> None:
    torch.manual_seed(5)
    first = torch.rand(10, device="granule").cpu()
    torch.rand(10)
    second = torch.rand(10, device="granule").cpu()
    torch.manual_seed(5)
    assert torch.equal(torch.rand(10, device="granule").cpu(), first)
    assert torch.equal(torch.rand(10, device="granule").cpu(), second), "the CPU's generator is another one"
    state = torch.granule.get_rng_state()
    third = torch.randn(10, device="granule").cpu()
    torch.granule.set_rng_state(state)
    assert torch.equal(torch.randn(10, device="granule").cpu(), third)
    generator = torch.Generator(device="granule").manual_seed(9)
    drawn = torch.randint(100, (5,), device="granule", generator=generator).cpu()
    generator.manual_seed(9)
    assert torch.equal(torch.randint(100, (5,), device="granule", generator=generator).cpu(), drawn)
    before = torch.granule.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="granule"):
        torch.rand(3, device="granule")
    assert torch.equal(torch.granule.get_rng_state(), before)


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution(groups: int) -> None:
    host = torch.nn.Conv2d(4, 6, 3, padding=1, groups=groups)
    device = torch.nn.Conv2d(4, 6, 3, padding=1, groups=groups).to("granule")
    device.load_state_dict(host.state_dict())
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    y = x.detach().to("granule").requires_grad_()
    host(x).square().sum().backward()
    device(y).square().sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)
    for ours, theirs in zip(device.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
    assert torch.nn.functional.conv1d(y.detach()[0], torch.ones(1, 8, 1, device="granule")).shape == (4, 1, 8)


def test_dlpack() -> None:
    tensor = torch.arange(3.0, device="granule")
    assert torch.from_dlpack(torch.utils.dlpack.to_dlpack(tensor)).data_ptr() == tensor.data_ptr()
