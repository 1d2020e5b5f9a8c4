"""How late a device is: for each free, how many requests and frees later, and how many µs, its stream is done with what it had been
given until then: lag.py

Nothing is asked while a program runs. PyTorch's history says when each request and free was made. Events are recorded behind modules,
with the device's time in them; the program is slower by that alone, and `host_ratio` says by how much. So the device's lag is known at
each event. Of a free it is taken as between those of its stream's events around it (`events_*`, `us_*`). What is certain is that the
stream was not done before the first of these (`least_*`), and was done with the second (`most_*`). A block that other streams were given
is done with when they all are. Frees that were done with after the last request are cut. `log2` counts frees by lag: 0, 1, 2 to 3, 4
to 7, ... events.

Replays take one lag for a whole run: `--lag` of `cargo xtask corpus judge` takes the two that are printed, the median and the 99th
percentile, and one of them goes into `granule replay --lag`.
"""
import bisect
import itertools
import math
import time

import common
from common import FAKE, TINY, say

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1))


def lags(trace, marks, uses=()):
    """Each free's lag, and how many frees were cut. A lag is (events, µs), each (at least, about, at most).

    trace: (host µs, action, address, stream), by time. marks: for each stream (host µs when queued, host µs when the device was there),
    by time. uses: (host µs, address, stream) of other streams that were given a block.
    """
    times = [entry[0] for entry in trace]
    queued = {stream: [mark[0] for mark in its] for stream, its in marks.items()}
    # Nothing is done before it was queued, and what was queued later is done later, whatever the clocks say.
    done = {stream: list(itertools.accumulate((max(mark) for mark in its), max)) for stream, its in marks.items()}

    def ends(stream, now):
        """When it is done with what was queued until now: at least, about, at most."""
        its, passed = queued.get(stream, ()), done.get(stream, ())
        # The history has whole µs: an event of the same one may be before or behind.
        before, behind = bisect.bisect_right(its, now) - 1, bisect.bisect_left(its, now + 1)
        if behind == len(its):
            return (math.inf,) * 3
        most, late = passed[behind], passed[behind] - its[behind]
        if before < 0:
            return now, min(now + late, most), most
        least = max(now, passed[before])
        was_late, part = passed[before] - its[before], (now - its[before]) / (its[behind] - its[before])
        return least, min(max(now + was_late + (late - was_late) * part, least), most), most

    users, uses, given, found, cut = {}, sorted(uses), 0, [], 0
    for at, (now, action, address, stream) in enumerate(trace):
        while given < len(uses) and uses[given][0] <= now:
            users.setdefault(uses[given][1], set()).add(uses[given][2])
            given += 1
        others = users.pop(address, set())
        if action == "free_requested":
            end = [max(bounds) for bounds in zip(*(ends(user, now) for user in others | {stream}))]
            if end[2] > times[-1]:
                cut += 1
            else:
                found.append((tuple(max(0, bisect.bisect_left(times, it) - at - 1) for it in end), tuple(it - now for it in end)))
    return found, cut


def summary(found, cut):
    """Quantiles, parts and counts of what `lags` found."""
    said = {"frees": len(found), "cut": cut}
    if not found:
        return said
    for bound, which in (("least_", 0), ("", 1), ("most_", 2)):
        for unit, column in (("events", 0), ("us", 1)):
            values = sorted(lag[column][which] for lag in found)
            said |= {f"{bound}{unit}_{q}": round(values[max(0, math.ceil(part * len(values)) - 1)]) for q, part in QUANTILES}
        said[f"{bound}over"] = {events: round(sum(lag[0][which] > events for lag in found) / len(found), 4) for events in (0, 100, 1000)}
    sizes = [lag[0][1].bit_length() for lag in found]
    said["log2"] = [sizes.count(size) for size in range(max(sizes) + 1)]
    said["lag"] = f"--lag {said['events_p50']},{said['events_p99']}"
    return said


def now():
    """Host µs, by the clock of PyTorch's history."""
    return time.time_ns() / 1000


class Watch:
    """Events on streams, read when all is over."""

    def __init__(self, spare):
        import torch

        self.torch, self.marks, self.uses = torch, {}, []
        self.main = torch.cuda.current_stream()
        self.spare = [torch.cuda.Event(enable_timing=True) for _ in range(spare)]
        for event in self.spare:  # which makes it
            event.record(self.main)
        self.begin = self.meeting()

    def meeting(self):
        """An event, the host's µs at which the device was there, and by how many that may be wrong."""
        best = None
        for _ in range(20):
            event = self.torch.cuda.Event(enable_timing=True)
            before = now()
            event.record(self.main)
            event.synchronize()
            after = now()
            if best is None or after - before < 2 * best[2]:
                best = event, (before + after) / 2, (after - before) / 2
        return best

    def mark(self, stream=None):
        event = self.spare.pop() if self.spare else self.torch.cuda.Event(enable_timing=True)
        stream = stream or self.main
        self.marks.setdefault(stream.cuda_stream, []).append((now(), event))
        event.record(stream)

    def used(self, tensor, stream):
        """`tensor` is given to `stream`, as by `record_stream`."""
        self.uses.append((now(), tensor.untyped_storage().data_ptr(), stream.cuda_stream))

    def hook(self, model):
        """Marks behind each module, and behind the gradient of its output."""
        def behind(_module, _inputs, output):
            self.mark()
            if output.requires_grad:
                output.register_hook(lambda _: self.mark())

        return [module.register_forward_hook(behind) for module in model.modules() if not list(module.children())]

    def read(self, trace):
        """All lags, and by how many µs the two clocks may differ."""
        first, first_us, first_error = self.begin
        last, last_us, last_error = self.meeting()
        rate = (last_us - first_us) / max(first.elapsed_time(last), 1e-3)  # host µs in a device's ms: close to 1000
        reached = lambda event: first_us + first.elapsed_time(event) * rate  # noqa: E731
        marks = {stream: [(at, reached(event)) for at, event in its] for stream, its in self.marks.items()}
        return lags(trace, marks, self.uses), max(first_error, last_error)


def history(torch, since):
    """Requests and frees since then, by time; the history's clock is exact to some µs."""
    entries = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    entries = ((e["time_us"], e["action"], e["addr"], e["stream"]) for e in entries if e["action"] in ("alloc", "free_requested"))
    return sorted((entry for entry in entries if entry[0] >= since - 100), key=lambda entry: entry[0])


def timed(torch, step, steps, watch):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for at in range(steps):
        step(at, watch)
    queued = time.perf_counter() - start
    torch.cuda.synchronize()
    return queued, time.perf_counter() - start


def measure(make, steps):
    """Runs a program plainly, watched, and plainly again."""
    import torch

    step, model = make()
    timed(torch, step, 3, None)
    plain = [timed(torch, step, steps, None)]
    watch = Watch(spare=20_000)
    hooks = watch.hook(model) if model is not None else []
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=4_000_000)
    try:
        since = now()
        torch.empty(1, device="cuda")
        asked = now()
        watched = timed(torch, step, steps, watch)
        for stream in list(watch.marks):
            watch.mark(torch.cuda.ExternalStream(stream) if stream else watch.main)
        torch.cuda.synchronize()
        trace = history(torch, since)
    finally:
        torch.cuda.memory._record_memory_history(None)
    if len(trace) < 2 or trace[1][0] > asked + 100:
        raise RuntimeError(f"the history's clock is another: {trace[:2]} was asked from {since} to {asked}")
    (found, cut), clock = watch.read(trace)
    for hook in hooks:
        hook.remove()
    plain.append(timed(torch, step, steps, None))
    ratio = lambda which: round(watched[which] / min(run[which] for run in plain), 3)  # noqa: E731
    return {**summary(found, cut), "steps": steps, "entries": len(trace), "marks": sum(map(len, watch.marks.values())), "clock_us": round(clock, 1),
            "host_s": round(watched[0], 3), "device_s": round(watched[1], 3), "host_ratio": ratio(0), "whole_ratio": ratio(1)}


def training(make, batch, read_every=0, offload=False):
    def program():
        import contextlib

        import torch

        model = make().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def step(at, watch):
            with torch.autograd.graph.save_on_cpu(pin_memory=True) if offload else contextlib.nullcontext():
                loss = model(*batch())
                loss = loss if loss.dim() == 0 else loss.float().square().mean()
                loss.backward()
            optimizer.step()
            if watch:
                watch.mark()
            optimizer.zero_grad(set_to_none=True)
            if read_every and at % read_every == read_every - 1:
                loss.item()

        return step, model

    return program


def graphs():
    """A captured step, with eager work of changing sizes between its replays."""
    import torch

    width = 256 if TINY else 4096
    net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)]).cuda()
    given, graph = torch.randn(512, width, device="cuda"), torch.cuda.CUDAGraph()
    with torch.no_grad():
        net(given)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            net(given)

    def step(at, watch):
        graph.replay()
        for i in range(16):
            made = torch.full((1000 * (1 + (at + i) % 7) * 64,), 1.0, device="cuda")
            made = (made * 2).sqrt()
            if watch:
                watch.mark()

    return step, None


def copies():
    """Blocks that a second stream copies to the host, and that are freed while it still reads them."""
    import torch

    side, n = torch.cuda.Stream(), (1 if TINY else 64) << 20
    home = torch.empty(n, dtype=torch.uint8, pin_memory=True)
    work = torch.randn(256 if TINY else 4096, 256 if TINY else 4096, device="cuda")

    def step(_at, watch):
        made = torch.full((n,), 1, dtype=torch.uint8, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            home.copy_(made, non_blocking=True)
        made.record_stream(side)
        if watch:
            watch.used(made, side)
        del made
        if watch:
            watch.mark(side)
        found = work
        for _ in range(8):
            found = (found @ work).mul_(1e-3)
            if watch:
                watch.mark()

    return step, None


def body():
    import torch

    from models import Gpt, ResNet

    how = common.install("native")
    torch.cuda.init()
    common.turn()
    steps = 3 if TINY else 12
    small = {"d": 64, "layers": 2, "heads": 2, "vocab": 512, "longest": 64} if TINY else {}
    vocab, longest = (512, 64) if TINY else (50304, 1024)
    gpt = lambda: Gpt(**small)  # noqa: E731
    resnet = lambda: ResNet(depths=(1, 1, 1, 1), width=8) if TINY else ResNet()  # noqa: E731
    tokens = lambda b, t: lambda: (torch.randint(vocab, (b, min(t, longest)), device="cuda"),)  # noqa: E731
    side = 64 if TINY else 224
    images = lambda: (torch.randn(2 if TINY else 32, 3, side, side, device="cuda"),)  # noqa: E731
    say(step="lag", phase="how", all_done_at_once=FAKE, **how)
    for phase, make, times in (
        ("gpt, batch 8, loss read each step", training(gpt, tokens(8, 1024), 1), 1),
        ("gpt, batch 8, loss read every 10", training(gpt, tokens(8, 1024), 10), 2),
        ("gpt, batch 8, loss never read", training(gpt, tokens(8, 1024)), 1),
        ("gpt, batch 1, short, loss never read", training(gpt, tokens(1, 64)), 2),
        ("resnet, batch 32, loss never read", training(resnet, images), 2),
        ("gpt, batch 2, activations on the host", training(gpt, tokens(2, 512), offload=True), 1),
        ("graph, eager work between replays", graphs, 10),
        ("copies on a second stream", copies, 10),
    ):
        try:
            say(step="lag", phase=phase, **measure(make, steps * times))
        except Exception as error:  # noqa: BLE001: one program costs no other
            say(step="lag", phase=phase, failed=f"{type(error).__name__}: {error}"[:500])
        torch.cuda.empty_cache()


if __name__ == "__main__":
    common.main(body)
