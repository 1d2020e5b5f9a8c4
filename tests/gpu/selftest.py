"""enable() as a user has it: on a release of torch that was not tested it runs granule_torch's own test."""
import time

import common
from common import say


def body():
    start = time.perf_counter()
    how = common.install("granule")
    import granule_torch
    import torch

    torch.cuda.init()
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    say(step="selftest", seconds=round(time.perf_counter() - start, 1), right=granule_torch.is_enabled(), backend=torch.cuda.get_allocator_backend(),
        sum=float(x.sum()), ledger=str(granule_torch.ledger())[:1500], report=granule_torch.report()[:1500], **how)


if __name__ == "__main__":
    common.main(body)
