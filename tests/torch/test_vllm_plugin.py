"""vLLM's sleep mode with Granule's backend: in vLLM itself where that is installed, and what a vLLM is told that does not fit."""
import importlib.util
import logging
import os
import sys
import tempfile
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from observe import MIB, error
from scene import GRANULE, Run, scene
from test_sleep import filled, free_bytes, pattern, same

RUNS = (Run("contents", contents=True, gib=1),)
# vLLM's own modules, and a device that nothing has used: a process for each.
ALONE = dict(alone=True, install=False, allocators=(GRANULE,))


def needs_vllm(test):
    if importlib.util.find_spec("vllm"):
        return scene(**ALONE)(test)

    def absent():
        pytest.skip("vllm is not installed in this environment")

    return absent


def configuration(enable_sleep_mode=True, sleep_mode_backend="granule"):
    """As much of a VllmConfig as matters here; a worker's constructor reads more."""
    model = SimpleNamespace(enable_sleep_mode=enable_sleep_mode, sleep_mode_backend=sleep_mode_backend)
    return MagicMock(model_config=model)


def worker(config):
    from vllm.v1.worker.worker_base import WorkerBase

    return WorkerBase(vllm_config=config, local_rank=0, rank=0, distributed_init_method="")


def said_by_plugin(do):
    """What the plugin logs meanwhile."""
    lines, log = [], logging.getLogger("vllm.plugins.granule_torch")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        do()
    finally:
        log.removeHandler(handler)
    return "\n".join(lines)


@needs_vllm
def test_a_worker_whose_configuration_selects_it_runs_on_granule():
    import granule_torch
    from granule_torch.adapters import vllm
    from vllm.plugins import load_plugins_by_group

    for _ in range(2):
        load_plugins_by_group("vllm.general_plugins")["granule"]()
    import vllm.device_allocator as package
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    config = configuration()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GRANULE_VLLM_BACKUP"] = folder
        assert folder in said_by_plugin(lambda: worker(config)) and granule_torch.is_enabled()
        worker(config)
        config.model_config.sleep_mode_offload_cudagraph, config.use_cumem_cudagraph_pool = True, False
        assert "sleep_mode_offload_cudagraph has no effect" in said_by_plugin(lambda: worker(config))
        allocator = package.get_mem_allocator_instance()
        assert isinstance(allocator, vllm.CuMemAllocator) and not torch.cuda.is_initialized()
        backend = SleepModeBackendFactory.create_backend(config.model_config)
        assert backend.state() == "RUNNING" and backend.preserves_communicators()
        assert not backend.preserves_compiled_artifacts() and not backend.preserves_graphs_with_communicators()
        assert not backend.supports_durable_storage()
        with allocator.use_memory_pool("weights"):
            weights = filled(20 * MIB, 1)
        with allocator.use_memory_pool("runtime"), allocator.use_memory_pool("kv_cache"):
            cache = filled(60 * MIB, 2)
        before = free_bytes()
        for _ in range(2):
            backend.suspend(1)
            assert backend.state() == "SUSPENDED" and free_bytes() >= before + 80 * MIB
        backend.resume(["weights"])
        assert backend.state() == "SUSPENDED" and same(weights, 1)
        backend.resume()
        backend.resume()
        assert backend.state() == "RUNNING"
        cache.copy_(pattern(60 * MIB, 3))
        backend.discard(("kv_cache",))
        assert backend.state() == "SUSPENDED" and same(weights, 1)
        # No room: it says that not all is awake, and does the rest when there is some.
        other = torch.empty(960 * MIB, dtype=torch.uint8, device="cuda")
        assert "GranuleError" in error(backend.resume) and backend.state() == "SUSPENDED"
        del other
        backend.resume(["kv_cache"])
        assert backend.state() == "RUNNING" and same(weights, 1)
        backend.suspend(2)
        backend.resume()
        assert not same(weights, 1)
        assert "ValueError" in error(backend.suspend, 3) and backend.state() == "RUNNING"


@needs_vllm
def test_another_configuration_sees_nothing_of_it():
    import granule_torch
    from granule_torch.adapters import vllm_plugin

    vllm_plugin.register()
    from vllm.device_allocator import cumem

    theirs = cumem.CuMemAllocator
    for model in ({"sleep_mode_backend": "cumem"}, {"enable_sleep_mode": False}):
        assert said_by_plugin(lambda: worker(configuration(**model))) == ""
    assert cumem.CuMemAllocator is theirs and not granule_torch.is_enabled()


@needs_vllm
def test_too_late_means_vllms_own_allocator():
    import granule_torch
    from granule_torch.adapters import vllm_plugin

    vllm_plugin.register()
    from vllm.device_allocator import cumem

    theirs, kept = cumem.CuMemAllocator, filled(MIB, 1)
    said = said_by_plugin(lambda: worker(configuration()))
    assert "initialised CUDA already" in said and "vLLM's own allocator" in said
    assert cumem.CuMemAllocator is theirs and not granule_torch.is_enabled() and same(kept, 1)
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    # The backend is there all the same, over that allocator.
    backend = SleepModeBackendFactory.create_backend(configuration().model_config)
    backend.suspend()
    backend.resume()
    assert backend.state() == "RUNNING"


@needs_vllm
def test_what_is_enabled_already_is_never_too_late():
    import granule_torch
    from granule_torch.adapters import vllm, vllm_plugin

    granule_torch.enable()
    vllm_plugin.register()
    kept = filled(MIB, 1)
    worker(configuration())
    from vllm.device_allocator import get_mem_allocator_instance

    assert isinstance(get_mem_allocator_instance(), vllm.CuMemAllocator) and same(kept, 1)


@needs_vllm
def test_a_backup_that_is_none_stops_the_worker_before_it_begins():
    import granule_torch
    from granule_torch.adapters import vllm_plugin

    vllm_plugin.register()
    os.environ["GRANULE_VLLM_BACKUP"] = "/no/such/directory"
    said = error(worker, configuration())
    assert "ValueError" in said and "GRANULE_VLLM_BACKUP" in said and not granule_torch.is_enabled()


@needs_vllm
def test_a_newer_shape_is_refused_before_anything_changes():
    import granule_torch
    from granule_torch.adapters import vllm_plugin

    vllm_plugin.register()
    import vllm.device_allocator as package
    from vllm.device_allocator import cumem

    theirs = cumem.CuMemAllocator
    for change in (
        lambda: setattr(theirs, "hibernate", lambda self: None),
        lambda: (delattr(theirs, "hibernate"), setattr(theirs, "discard", lambda self, tags, zero=False: None)),
        lambda: setattr(package, "DEFERRABLE_TAGS", ("weights",)),
    ):
        change()
        said = said_by_plugin(lambda: worker(configuration()))
        assert "was made for vLLM 0.33.0" in said and "vLLM's own allocator" in said
        assert cumem.CuMemAllocator is theirs and not granule_torch.is_enabled()


# A model of vLLM's own, small enough to have weights of any contents.
LLAMA = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=256, intermediate_size=512, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, vocab_size=1024, max_position_embeddings=512, torch_dtype="bfloat16",
)


@needs_vllm
def test_an_engine_sleeps_and_wakes():
    import json

    # The engine in this process, where its tensors can be looked at; the rig has no kernels to sample with.
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_NO_USAGE_STATS="1")
    from vllm import LLM

    with tempfile.TemporaryDirectory() as model:
        with open(os.path.join(model, "config.json"), "w", encoding="ascii") as config:
            json.dump(LLAMA, config)
        engine = LLM(
            model, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, enable_sleep_mode=True,
            sleep_mode_backend="granule", kv_cache_memory_bytes=64 * MIB, max_model_len=256, max_num_seqs=2,
            gpu_memory_utilization=0.5,
        )
    worker = engine.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    from vllm.device_allocator import get_mem_allocator_instance

    allocator = get_mem_allocator_instance()
    assert {"weights", "kv_cache", "runtime"} <= {data.tag for data in allocator.pointer_to_data.values()}
    kept = {name: value.data_ptr() for name, value in worker.model_runner.model.named_parameters()}
    parts = dict(worker.model_runner.model.named_parameters())

    def fill():
        for number, value in enumerate(parts.values()):
            value.data.copy_(pattern(value.numel(), number).reshape(value.shape))

    def are_kept():
        at = kept == {name: value.data_ptr() for name, value in parts.items()}
        whole = enumerate(parts.values())
        return at and all(torch.equal(value.cpu().flatten(), pattern(value.numel(), n).to(value.dtype)) for n, value in whole)

    fill()
    before = free_bytes()
    engine.sleep(level=1)
    assert free_bytes() >= before + 64 * MIB and worker.sleep_mode_backend.state() == "SUSPENDED"
    engine.wake_up(tags=["weights"])
    assert are_kept() and engine.llm_engine.is_sleeping() and allocator.tags_asleep() == {"kv_cache"}
    engine.wake_up(tags=["kv_cache"])
    assert not engine.llm_engine.is_sleeping() and worker.sleep_mode_backend.state() == "RUNNING"
    engine.sleep(level=2)
    engine.wake_up()
    assert not are_kept()
    fill()
    engine.sleep(level=0)
    engine.release_kv_cache_memory()
    assert are_kept() and allocator.tags_asleep() == {"kv_cache"}
    engine.wake_up(tags=["kv_cache"])
    assert are_kept() and not engine.llm_engine.is_sleeping() and allocator.tags_asleep() == set()


class Factory:
    """Where vLLM's backends are registered, as that is called."""

    def __init__(self):
        self.registered = {}

    def register_backend(self, name, module_path, class_name):
        if name in self.registered:
            raise ValueError(name)
        self.registered[name] = (module_path, class_name)

    def get_backend_class(self, name):
        return SimpleNamespace(__module__=self.registered[name][0])


@pytest.fixture
def a_vllm(monkeypatch):
    """Modules in the place of a vLLM's, of some release."""

    def of(version, factory=None, worker=None):
        # The modules may be there already, where vLLM is.
        for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
            monkeypatch.delitem(sys.modules, name)
        names = {"vllm": {"__version__": version, "__path__": []}}
        names["vllm.device_allocator"] = {"__path__": []}
        if factory:
            names["vllm.device_allocator.sleep_mode_backend"] = {"SleepModeBackendFactory": factory}
        names.update({"vllm.v1": {"__path__": []}, "vllm.v1.worker": {"__path__": []}})
        if worker:
            names["vllm.v1.worker.worker_base"] = {"WorkerBase": worker}
        for name, contents in names.items():
            module = ModuleType(name)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, name, module)

    return of


def new_worker():
    class WorkerBase:
        def __init__(self, vllm_config, rank=0):
            self.began = (vllm_config, rank)

    return WorkerBase


def test_a_release_that_does_not_fit_is_named_and_left_as_it_was(a_vllm):
    from granule_torch.adapters import vllm_plugin

    class Older:
        def register_backend(self, name, backend):
            raise AssertionError("called")

    class Worker:
        def __init__(self, config):
            pass

    for factory, base, found in (
        (None, new_worker(), "sleep_mode_backend cannot be imported"),
        (Older(), new_worker(), "has no parameters ['class_name', 'module_path']"),
        (Factory(), None, "worker_base cannot be imported"),
        (Factory(), Worker, "has no parameters ['vllm_config']"),
    ):
        a_vllm("0.20.1", factory, base)
        init = base and base.__init__
        said = said_by_plugin(vllm_plugin.register)
        assert "vLLM 0.20.1" in said and "made for vLLM 0.33.0" in said and found in said
        assert (base and base.__init__) is init and getattr(factory, "registered", {}) == {}


def test_it_is_registered_once_however_often_it_is_called(a_vllm):
    from granule_torch.adapters import vllm_plugin

    factory, base = Factory(), new_worker()
    a_vllm("0.33.0", factory, base)
    init = base.__init__
    assert said_by_plugin(lambda: [vllm_plugin.register() for _ in range(3)]) == ""
    assert factory.registered == {"granule": ("granule_torch.adapters.vllm_backend", "GranuleBackend")}
    assert base.__init__.__wrapped__ is init
    config = configuration(sleep_mode_backend="cumem")
    assert base(config, rank=2).began == (config, 2) and base(vllm_config=None).began == (None, 0)


def test_another_plugins_backend_of_the_name_stays(a_vllm):
    from granule_torch.adapters import vllm_plugin

    factory, base = Factory(), new_worker()
    factory.register_backend("granule", "another.plugin", "Backend")
    a_vllm("0.33.0", factory, base)
    init = base.__init__
    assert "another plugin has registered" in said_by_plugin(vllm_plugin.register)
    assert base.__init__ is init and factory.registered["granule"][0] == "another.plugin"


def test_what_goes_wrong_otherwise_does_not_stop_vllm(a_vllm):
    from granule_torch.adapters import vllm_plugin

    class Broken(Factory):
        def register_backend(self, name, module_path, class_name):
            raise KeyError("registry")

    base = new_worker()
    a_vllm("0.33.0", Broken(), base)
    init = base.__init__
    assert "could not be registered" in said_by_plugin(vllm_plugin.register) and base.__init__ is init
