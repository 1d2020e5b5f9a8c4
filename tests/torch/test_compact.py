"""Memory between live tensors, given back. Contents and addresses are compared."""
import torch
from observe import MIB, error
from scene import GRANULE, POLICY, Run, scene

RUNS = (Run("contents", contents=True, gib=1),)


def filled(size, start):
    once = (torch.arange(256) * 5 + start).to(torch.uint8)
    return once.repeat(size // 256 + 1)[:size].to("cuda")


def free_bytes():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def sparse():
    """Every fourth tensor of 3 MiB of which the others are gone, on granules that a large one made large."""
    large = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
    tensors = [filled(3 * MIB, n) for n in range(32)]
    return large, tensors[::4]


@scene(allocators=(POLICY,), alone=True)
def test_tensors_keep_their_addresses_and_contents():
    import granule_torch

    large, kept = sparse()
    torch.cuda.empty_cache()
    addresses, before = [tensor.data_ptr() for tensor in kept], free_bytes()
    granule_torch.pin_physical(kept[0])
    compacted = granule_torch.compact()
    assert compacted.gained > 0 and compacted.moved > 0 and compacted.seconds > 0
    assert free_bytes() == before + compacted.gained
    assert [tensor.data_ptr() for tensor in kept] == addresses
    assert all(torch.equal(tensor, filled(3 * MIB, 4 * n)) for n, tensor in enumerate(kept))
    assert granule_torch.compact(0).gained == 0
    del large


@scene(allocators=(GRANULE,), alone=True)
def test_pytorchs_policy_moves_nothing():
    import granule_torch

    large, kept = sparse()
    assert "policy:granule" in error(granule_torch.compact)
    del large, kept
