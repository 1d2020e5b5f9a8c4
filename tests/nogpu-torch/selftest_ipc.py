"""Checks that tensors and events go from one process to another."""
import os

import torch
import torch.multiprocessing as mp

BYTES = os.environ.get("FAKE_GPU_BYTES") == "1"
N = 4_000_000  # large enough for a segment of its own


def pattern(shift):
    return torch.arange(N, dtype=torch.int32) + shift


def consumer(inbox, outbox):
    """Answers what it sees of the tensors and the event, then writes into the first tensor."""
    first, inside, second, event = inbox.get(timeout=100)
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda:0"), event)
    torch.cuda.current_stream().wait_event(event)
    event.synchronize()
    outbox.put({"device": first.device.index, "complete": event.query(),
                "offset": inside.data_ptr() - first.data_ptr(),
                "first": torch.equal(first.cpu(), pattern(1)), "inside": torch.equal(inside.cpu(), pattern(1)[1000:2000]),
                "second": torch.equal(second.cpu(), pattern(3)),
                "charged": torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]})
    first.copy_(pattern(2))
    torch.cuda.synchronize()
    outbox.put("written")
    inbox.get(timeout=100)


def run(check):
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=consumer, args=(inbox, outbox))
    process.start()
    tensor, second = pattern(1).cuda(), pattern(3).cuda()
    event = torch.cuda.Event(interprocess=True)
    event.record()
    inbox.put((tensor, tensor[1000:2000], second, event.ipc_handle()))
    seen = outbox.get(timeout=100)
    check("a tensor arrives in another process, and a part of it where it lies in the whole",
          seen["device"] == 0 and seen["offset"] == 4000)
    check("so does an event", seen["complete"])
    check("what arrives does not count there a second time", seen["charged"] < tensor.nbytes)
    check("the other process goes on", outbox.get(timeout=100) == "written")
    if BYTES:
        check("the contents arrive", seen["first"] and seen["inside"] and seen["second"])
        check("what the other process writes is seen here", torch.equal(tensor.cpu(), pattern(2)))
    inbox.put(None)
    process.join(100)
    check("the other process ends well", process.exitcode == 0)
