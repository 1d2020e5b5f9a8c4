"""Checks that the driver's functions and the runtime's (torch's) are about one device, and what is on it."""
import ctypes
import os

BYTES = os.environ.get("FAKE_GPU_BYTES") == "1"
LAG = int(os.environ.get("FAKE_GPU_EVENT_LAG", 0))
MiB = 1 << 20
NOT_READY, CAPTURE_UNSUPPORTED = 600, 900

size_t, void_p, u64 = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64


class Properties(ctypes.Structure):
    """CUmemAllocationProp of pinned device memory."""
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", ctypes.c_int),
                ("device", ctypes.c_int), ("rest", ctypes.c_uint64 * 2)]


class Access(ctypes.Structure):
    _fields_ = [("location", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


class Library:
    """Functions that raise for an error; `try_` answers its number."""
    def __init__(self, soname):
        self.library = ctypes.CDLL(soname)

    def try_(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def __getattr__(self, name):
        def call(*arguments):
            if code := self.try_(name, *arguments):
                raise RuntimeError(f"{name}: error {code}")
        return call


def loaded(prefix):
    """The fake library of this name that the process has loaded."""
    maps = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
    return next(path for path in sorted(maps) if os.path.basename(path).startswith(prefix))


def run(check):
    import torch
    torch.cuda.init()
    torch.empty(1, device="cuda")
    driver, runtime = Library("libcuda.so.1"), Library(loaded("libcudart.so"))
    driver.library.fakegpu_counter_named.restype = u64
    shared_handles(check, torch, driver, runtime)
    accounting(check, torch, driver, runtime)
    events(check, torch, driver)
    queues(check, torch, driver)
    captures(check, torch, driver)
    virtual_memory(check, torch, driver)
    if BYTES:
        contents(check, torch, driver)


def shared_handles(check, torch, driver, runtime):
    context, device = void_p(), ctypes.c_int(-1)
    driver.cuCtxGetCurrent(ctypes.byref(context))
    driver.cuCtxGetDevice(ctypes.byref(device))
    active, flags = ctypes.c_int(), ctypes.c_uint()
    driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
    check("torch's context is the driver's primary one", context.value and device.value == 0 and active.value == 1)
    stream = torch.cuda.Stream(priority=-1)
    priority = ctypes.c_int()
    driver.cuStreamGetPriority(void_p(stream.cuda_stream), ctypes.byref(priority))
    check("a stream of torch is one of the driver's", priority.value == -1)
    made = void_p()
    driver.cuStreamCreateWithPriority(ctypes.byref(made), 1, 0)
    event = torch.cuda.Event()
    event.record(torch.cuda.ExternalStream(made.value))
    check("a stream of the driver takes torch's work", driver.try_("cuEventQuery", void_p(event.cuda_event)) in (0, NOT_READY))
    torch.cuda.ExternalStream(made.value).synchronize()
    driver.cuStreamDestroy_v2(made)
    check("a destroyed stream is refused", driver.try_("cuStreamQuery", made) == 400)


def accounting(check, torch, driver, runtime):
    before = torch.cuda.mem_get_info()[0]
    at = void_p()
    driver.cuMemAlloc_v2(ctypes.byref(at), size_t(10 * MiB))
    check("memory of the driver is gone for torch", before - torch.cuda.mem_get_info()[0] == 10 * MiB)
    base, length = void_p(), size_t()
    driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(length), void_p(at.value + 4097))
    check("its range is known from inside", (base.value, length.value) == (at.value, 10 * MiB))
    runtime.cudaFree(at)
    check("the runtime frees it", torch.cuda.mem_get_info()[0] == before)
    kind = ctypes.c_uint(9)
    check("freed memory is no memory", driver.try_("cuPointerGetAttribute", ctypes.byref(kind), 2, at) == 1)
    pinned = torch.empty(1000, dtype=torch.uint8, pin_memory=True)
    driver.cuPointerGetAttribute(ctypes.byref(kind), 2, void_p(pinned.data_ptr()))
    check("pinned memory of torch is the driver's host memory", kind.value == 1 and pinned.is_pinned())


def events(check, torch, driver):
    event = void_p()
    driver.cuEventCreate(ctypes.byref(event), 2)
    stream = torch.cuda.Stream()
    driver.cuEventRecord(event, void_p(stream.cuda_stream))
    seen = driver.try_("cuEventQuery", event)
    check("an event lags as it was told to", seen == (NOT_READY if LAG else 0))
    x = torch.empty(16, device="cuda")
    for _ in range(LAG):
        x.add_(1)
    check("launches of torch complete the driver's event", driver.try_("cuEventQuery", event) == 0)
    driver.cuEventRecord(event, void_p(stream.cuda_stream))
    stream.synchronize()
    check("so does waiting for its stream", driver.try_("cuEventQuery", event) == 0)
    driver.cuEventDestroy_v2(event)


def queues(check, torch, driver):
    """A function of the program holds its stream, and what is behind it there."""
    import threading
    gate, ran = threading.Event(), []

    @ctypes.CFUNCTYPE(None, void_p)
    def hold(_):
        ran.append(gate.wait(30))

    stream, other, event = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event()
    driver.cuLaunchHostFunc(void_p(stream.cuda_stream), hold, None)
    event.record(stream)
    other.wait_event(event)
    check("a host function holds its stream and who waits for it",
          not event.query() and not stream.query() and not other.query() and not ran)
    gate.set()
    other.synchronize()
    check("and lets it go", ran == [True] and event.query() == (LAG == 0) and stream.query())


def captures(check, torch, driver):
    def info(stream):
        status, number, graph, nodes, n = ctypes.c_int(), u64(), void_p(), void_p(), size_t()
        driver.cuStreamGetCaptureInfo_v2(void_p(stream.cuda_stream), *map(ctypes.byref, (status, number, graph, nodes, n)))
        return status.value, number.value, n.value

    side, graph, x = torch.cuda.Stream(), torch.cuda.CUDAGraph(), torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        x.add_(1)
        status, number, nodes = info(main)
        check("the driver sees torch's capture and its tail", status == 1 and number > 0 and nodes == 1)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            x.mul_(2)
        check("a stream that waits for it joins it", info(side)[:2] == (1, number))
        main.wait_stream(side)
        check("both tails are depended on after the join", info(main)[2] >= 1)
    check("the capture has ended", info(main)[0] == 0 and info(side)[0] == 0)
    before = driver.library.fakegpu_counter_named(b"graph_launch")
    graph.replay()
    check("the graph is launched", driver.library.fakegpu_counter_named(b"graph_launch") == before + 1)
    stream = void_p(torch.cuda.Stream().cuda_stream)
    driver.cuStreamBeginCapture_v2(stream, 0)
    at = void_p()
    check("a global capture forbids cuMemAlloc", driver.try_("cuMemAlloc_v2", ctypes.byref(at), size_t(512)) == CAPTURE_UNSUPPORTED)
    ended = void_p()
    check("which broke it", driver.try_("cuStreamEndCapture", stream, ctypes.byref(ended)) == 901 and not ended.value)


def give_access(driver, at, size):
    device = ctypes.c_int()
    driver.cuCtxGetDevice(ctypes.byref(device))
    driver.cuMemSetAccess(at, size_t(size), ctypes.byref(Access(1, device.value, 3)), size_t(1))


def map_new(driver, at, size, handle_types=0):
    handle, device = u64(), ctypes.c_int()
    driver.cuCtxGetDevice(ctypes.byref(device))
    wanted = Properties(1, handle_types, 1, device.value)
    driver.cuMemCreate(ctypes.byref(handle), size_t(size), ctypes.byref(wanted), u64(0))
    driver.cuMemMap(at, size_t(size), size_t(0), handle, u64(0))
    give_access(driver, at, size)
    return handle


def virtual_memory(check, torch, driver):
    size, at = 4 * MiB, void_p()
    driver.cuMemAddressReserve(ctypes.byref(at), size_t(size), size_t(0), void_p(0), u64(0))
    before = torch.cuda.mem_get_info()[0]
    handle = map_new(driver, at, size, handle_types=1)
    check("physical memory counts", before - torch.cuda.mem_get_info()[0] == size)
    descriptor, again = ctypes.c_int(-1), u64()
    driver.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, 1, u64(0))
    driver.cuMemImportFromShareableHandle(ctypes.byref(again), void_p(descriptor.value), 1)
    os.close(descriptor.value)
    found = Properties()
    driver.cuMemGetAllocationPropertiesFromHandle(ctypes.byref(found), again)
    check("an import knows what it is, and counts once",
          (found.type, found.handle_types, found.location) == (1, 1, 1) and before - torch.cuda.mem_get_info()[0] == size)
    driver.cuMemRelease(again)
    driver.cuMemRelease(handle)
    check("mapped memory outlives its handle", before - torch.cuda.mem_get_info()[0] == size)
    check("a range with a mapping is not given up", driver.try_("cuMemAddressFree", at, size_t(size)) == 1)
    driver.cuMemUnmap(at, size_t(size))
    check("unmapped it is gone", torch.cuda.mem_get_info()[0] == before)
    driver.cuMemAddressFree(at, size_t(size))


def contents(check, torch, driver):
    x = torch.arange(100_000, dtype=torch.int32)
    on_device = x.cuda()
    check("to the device and back", torch.equal(on_device.cpu(), x))
    check("within the device", torch.equal(on_device.clone().cpu(), x) or torch.equal(torch.empty_like(on_device).copy_(on_device).cpu(), x))
    pinned = x.pin_memory()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        moved = pinned.to("cuda", non_blocking=True)
        torch.cuda.current_stream().synchronize()
    check("from pinned memory, on a stream", torch.equal(moved.cpu(), x))
    check("a part of it", torch.equal(on_device[500:600].cpu(), x[500:600]))
    check("filled", torch.equal(torch.zeros(1000, device="cuda").cpu(), torch.zeros(1000)))
    if torch.cuda.device_count() > 1:
        check("to the second device", torch.equal(on_device.to("cuda:1").cpu(), x))
    size, at = 2 * MiB, void_p()
    driver.cuMemAddressReserve(ctypes.byref(at), size_t(size), size_t(0), void_p(0), u64(0))

    def byte():
        out = ctypes.c_ubyte(99)
        driver.cuMemcpyDtoH_v2(ctypes.byref(out), void_p(at.value + size - 1), size_t(1))
        return out.value

    handle = map_new(driver, at, size)
    driver.cuMemsetD8_v2(at, ctypes.c_ubyte(7), size_t(size))
    first = byte()
    driver.cuMemUnmap(at, size_t(size))
    out = ctypes.c_ubyte()
    check("nothing is read where nothing is mapped",
          driver.try_("cuMemcpyDtoH_v2", ctypes.byref(out), at, size_t(1)) == 1)
    driver.cuMemMap(at, size_t(size), size_t(0), handle, u64(0))
    check("nor where nobody was given access", driver.try_("cuMemcpyDtoH_v2", ctypes.byref(out), at, size_t(1)) == 1)
    give_access(driver, at, size)
    kept = byte()
    driver.cuMemUnmap(at, size_t(size))
    driver.cuMemRelease(handle)
    driver.cuMemRelease(map_new(driver, at, size))
    check("bytes belong to the physical memory, not to the address", (first, kept) == (7, 7) and byte() != 7)
    driver.cuMemUnmap(at, size_t(size))
    driver.cuMemAddressFree(at, size_t(size))
