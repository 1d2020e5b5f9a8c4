// What granule_torch/privateuse1.py calls. Plain C, so that one build serves every Python version.
#include "allocators.h"
#include "check.h"
#include "device_runtime.h"

#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace granule::privateuse1 {
namespace {

using c10::IValue;
using torch::CapturedTraceback;
using Context = std::shared_ptr<CapturedTraceback>;

std::atomic<bool> with_cpp{false};

// A stack is kept as a shared pointer on the heap.
void* gather(void*) noexcept {
  try {
    auto stack = CapturedTraceback::gather(true, true, with_cpp.load(std::memory_order_relaxed));
    return stack ? new Context(std::move(stack)) : nullptr;
  } catch (const std::exception& error) {
    TORCH_WARN_ONCE("Granule: a call stack could not be gathered: ", error.what());
    return nullptr;
  }
}

void release(void*, void* context) noexcept {
  delete static_cast<Context*>(context);
}

struct Free {
  void operator()(granule_snapshot* snapshot) const {
    granule_snapshot_free(snapshot);
  }
};

using Taken = std::unique_ptr<granule_snapshot, Free>;

c10::impl::GenericDict dict() {
  return c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get());
}

c10::impl::GenericList list() {
  return c10::impl::GenericList(c10::AnyType::get());
}

IValue integer(uint64_t value) {
  return static_cast<int64_t>(value);
}

IValue pool_id(granule_pool_id pool) {
  return c10::ivalue::Tuple::create({integer(pool.first), integer(pool.second)});
}

const char* name_of(int32_t action) {
  static constexpr const char* names[] = {"alloc",        "free_requested", "free_completed", "segment_alloc", "segment_free",
                                          "segment_map", "segment_unmap",  "snapshot",       "oom",           "annotate"};
  return names[action];
}

// The stacks of a snapshot. All are made readable together, each once.
class Stacks {
 public:
  // To be called for every stack before any is read.
  void note(void* context) {
    if (context != nullptr) {
      auto* stack = static_cast<Context*>(context)->get();
      if (places_.emplace(stack, noted_.size()).second) {
        noted_.push_back(stack);
      }
    }
  }

  void make_readable() {
    if (noted_.empty()) {
      return;
    }
    const auto readable = torch::symbolize(noted_);
    std::vector<IValue> frames;
    frames.reserve(readable.all_frames.size());
    for (const auto& from : readable.all_frames) {
      auto frame = dict();
      frame.insert("name", from.funcname);
      frame.insert("filename", from.filename);
      frame.insert("line", integer(from.lineno));
      frames.emplace_back(std::move(frame));
    }
    for (const auto& from : readable.tracebacks) {
      auto stack = list();
      for (const auto at : from) {
        stack.push_back(frames.at(at));
      }
      readable_.emplace_back(std::move(stack));
    }
  }

  IValue of(void* context) const {
    if (context == nullptr) {
      return list();
    }
    return readable_.at(places_.at(static_cast<Context*>(context)->get()));
  }

 private:
  std::unordered_map<CapturedTraceback*, size_t> places_;
  std::vector<CapturedTraceback*> noted_;
  std::vector<IValue> readable_;
};

template <class T>
struct Span {
  const T* first = nullptr;
  uint64_t count = 0;

  const T* begin() const {
    return first;
  }
  const T* end() const {
    return first + count;
  }
};

IValue block(const granule_block_info& from, const Stacks& stacks) {
  auto to = dict();
  to.insert("address", integer(from.addr));
  to.insert("size", integer(from.bytes));
  to.insert("requested_size", integer(from.requested));
  to.insert(
      "state",
      from.state == GRANULE_BLOCK_ALLOCATED      ? "active_allocated"
          : from.state == GRANULE_BLOCK_INACTIVE ? "inactive"
                                                 : "active_awaiting_free");
  to.insert("frames", stacks.of(from.context));
  return to;
}

IValue segment(const granule_segment_info& from, const Stacks& stacks) {
  auto to = dict();
  to.insert("device", integer(from.device));
  to.insert("address", integer(from.addr));
  to.insert("total_size", integer(from.total));
  to.insert("allocated_size", integer(from.allocated));
  to.insert("active_size", integer(from.active));
  to.insert("requested_size", integer(from.requested));
  to.insert("stream", integer(from.stream));
  to.insert("segment_type", from.is_large ? "large" : "small");
  to.insert("segment_pool_id", pool_id(from.pool));
  to.insert("is_expandable", from.is_growable);
  to.insert("frames", stacks.of(from.context));
  auto blocks = list();
  for (uint64_t i = 0; i < from.block_count; ++i) {
    blocks.push_back(block(from.blocks[i], stacks));
  }
  to.insert("blocks", std::move(blocks));
  return to;
}

IValue entry(const granule_trace_entry& from, const Stacks& stacks) {
  auto to = dict();
  to.insert("action", name_of(from.action));
  to.insert(from.action == GRANULE_ACTION_OOM ? "device_free" : "addr", integer(from.addr));
  to.insert("size", integer(from.bytes));
  to.insert("stream", integer(from.stream));
  to.insert("time_us", from.time_us);
  to.insert("pool_id", pool_id(from.pool));
  to.insert("compile_context", from.compile_context);
  to.insert("user_metadata", from.user_metadata);
  if (*from.internal_metadata != '\0') {
    to.insert("internal_metadata", from.internal_metadata);
  }
  // Where nothing was gathered, segments and blocks have an empty list, and entries have none: as PyTorch has it.
  if (from.context != nullptr) {
    to.insert("frames", stacks.of(from.context));
  }
  return to;
}

std::string pickled(const IValue& value) {
  std::string text;
  torch::jit::Pickler pickler(
      [&](const char* bytes, size_t count) { text.append(bytes, count); }, nullptr, nullptr, nullptr, nullptr,
      /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  return text;
}


// Turns the history on or off. `wanted` lacks its functions; stacks of C++ are gathered, too, where `cpp` says so.
void record_device_history(granule_history wanted, bool cpp) {
  wanted.size = sizeof wanted;
  wanted.gather = gather;
  wanted.release = release;
  with_cpp.store(cpp, std::memory_order_relaxed);
  check(granule_record_history(allocator(), &wanted));
}

// A snapshot of one pool's segments, or of all for {0, 0}, pickled: dict and list, as torch.cuda.memory._snapshot() answers.
std::string pickled_snapshot(granule_pool_id pool, bool traces) {
  granule_snapshot* raw = nullptr;
  check(granule_snapshot_take(allocator(), pool.first == 0 && pool.second == 0 ? nullptr : &pool, traces, &raw));
  const Taken taken(raw);
  Span<granule_segment_info> segments;
  check(granule_snapshot_segments(raw, &segments.first, &segments.count));
  std::vector<Span<granule_trace_entry>> devices;
  if (traces) {
    int32_t count = 0;
    check(granule_device_count(allocator(), &count));
    for (int32_t device = 0; device < count; ++device) {
      auto& trace = devices.emplace_back();
      check(granule_snapshot_trace(raw, device, &trace.first, &trace.count));
    }
  }

  Stacks stacks;
  for (const auto& from : segments) {
    stacks.note(from.context);
    for (uint64_t i = 0; i < from.block_count; ++i) {
      stacks.note(from.blocks[i].context);
    }
  }
  for (const auto& trace : devices) {
    for (const auto& from : trace) {
      stacks.note(from.context);
    }
  }
  stacks.make_readable();

  auto to = dict();
  auto all = list();
  for (const auto& from : segments) {
    all.push_back(segment(from, stacks));
  }
  to.insert("segments", std::move(all));
  auto histories = list();
  for (const auto& trace : devices) {
    auto history = list();
    for (const auto& from : trace) {
      history.push_back(entry(from, stacks));
    }
    histories.push_back(std::move(history));
  }
  to.insert("device_traces", std::move(histories));
  return pickled(to);
}

} // namespace
} // namespace granule::privateuse1

#define EXPORTED extern "C" __attribute__((visibility("default")))

using namespace granule::privateuse1;

namespace {

// What went wrong, until the thread's next call; null where nothing did.
template <class F>
const char* problem_of(const F& function) {
  static thread_local std::string problem;
  try {
    function();
    return nullptr;
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem.c_str();
}

} // namespace

// Registers the device layer over a backend, and starts it. Null if that worked, else why not.
EXPORTED const char* granule_torch_privateuse1_enable(
    const char* backend, const granule_backend_table* table, const char* settings) {
  return problem_of([&] {
    Options options;
    options.backend = backend;
    options.table = table;
    options.settings = settings;
    register_allocators(options);
    register_guard();
    register_hooks();
    register_kernels();
    register_graphs();
    device_count();
  });
}

// For calls of the C ABI; once enabled.
EXPORTED granule_allocator* granule_torch_privateuse1_allocator() {
  return allocator();
}

// Null where the backend has no pinned memory to give.
EXPORTED granule_host_allocator* granule_torch_privateuse1_pinned() {
  try {
    return pinned_memory();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Turns the history of device memory on or off; null if that worked, else why not.
EXPORTED const char* granule_torch_privateuse1_record_history(
    bool enabled, bool clear, int32_t contexts, bool cpp, uint64_t max_entries, uint32_t skip_actions) {
  return problem_of([&] {
    granule_history wanted{};
    wanted.enabled = enabled;
    wanted.clear = clear;
    wanted.contexts = contexts;
    wanted.max_entries = max_entries;
    wanted.skip_actions = skip_actions;
    record_device_history(wanted, cpp);
  });
}

// A pickled snapshot: the thread's, until its next call.
EXPORTED const char* granule_torch_privateuse1_snapshot(
    granule_pool_id pool, bool traces, const char** bytes, uint64_t* count) {
  static thread_local std::string pickled;
  return problem_of([&] {
    pickled = pickled_snapshot(pool, traces);
    *bytes = pickled.data();
    *count = pickled.size();
  });
}

// Lets the graph that the thread captures keep a pool, if it captures one.
EXPORTED const char* granule_torch_privateuse1_retain_pool(granule_pool_id pool) {
  return problem_of([&] { retain_in_capture(pool); });
}
