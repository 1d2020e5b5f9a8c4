// The hooks through which PyTorch's generic code reaches the device layer.
#include "check.h"
#include "device_generator.h"
#include "device_runtime.h"
#include "privateuse1.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include <utility>

namespace granule::privateuse1 {
namespace {

using c10::DeviceIndex;

granule_pointer_info_t info_of(const void* ptr) {
  granule_pointer_info_t info{};
  info.size = sizeof info;
  check(granule_pointer_info(allocator(), ptr, &info));
  return info;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }

  bool isAvailable() const override {
    return c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->deviceCount() > 0;
  }

  bool hasPrimaryContext(DeviceIndex) const override {
    return true;
  }

  DeviceIndex deviceCount() const override {
    return device_count();
  }

  void setCurrentDevice(DeviceIndex device) const override {
    set_device(device);
  }

  DeviceIndex getCurrentDevice() const override {
    return current_device();
  }

  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const auto previous = current_device();
    set_device(device);
    return previous;
  }

  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return exchangeDevice(device);
  }

  bool isPinnedPtr(const void* ptr) const override {
    return info_of(ptr).kind == GRANULE_POINTER_PINNED_HOST;
  }

  at::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(c10::DeviceType::PrivateUse1);
  }

  at::Device getDeviceFromPtr(void* ptr) const override {
    const auto info = info_of(ptr);
    TORCH_CHECK(info.kind == GRANULE_POINTER_DEVICE, "The pointer is not memory of a device: ", ptr);
    return {c10::DeviceType::PrivateUse1, static_cast<DeviceIndex>(info.device)};
  }

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return default_generator(device);
  }

  at::Generator getNewGenerator(DeviceIndex device) const override {
    return new_generator(device);
  }

  // The storage keeps what it holds.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    auto* impl = storage.unsafeGetStorageImpl();
    TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
    auto grown = impl->allocator()->allocate(bytes);
    const auto kept = std::min(bytes, storage.nbytes());
    if (kept != 0) {
      const auto stream = current_stream(storage.device().index());
      check(granule_copy_on_stream(
          allocator(), grown.get(), storage.data(), kept, GRANULE_COPY_DEVICE_TO_DEVICE, stream.device_index(),
          stream_handle(stream)));
      record_on_stream(storage.data_ptr(), stream);
    }
    impl->set_data_ptr_noswap(std::move(grown));
    impl->set_nbytes(bytes);
  }
};

// --- torch.accelerator.Graph ---------------------------------------------------------------------------------------


using at::GraphCaptureMode;
using c10::MempoolId_t;

// What the calling thread captures.
thread_local granule_capture* under_way = nullptr;

int32_t to_granule(GraphCaptureMode mode) {
  switch (mode) {
    case GraphCaptureMode::ThreadLocal:
      return GRANULE_CAPTURE_THREAD_LOCAL;
    case GraphCaptureMode::Relaxed:
      return GRANULE_CAPTURE_RELAXED;
    default:
      return GRANULE_CAPTURE_GLOBAL;
  }
}

// A capture is made ready for launches when it ends, so that `keep_graph` only says who may ask for that.
class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& wanted) : keep_(wanted.keep_graph) {}

  ~Graph() override {
    if (capture_ != nullptr) {
      forget(capture_);
      warn(granule_capture_abort(capture_));
    }
    warn(granule_graph_destroy(graph_));
  }

  void capture_begin(MempoolId_t pool, GraphCaptureMode mode) override {
    TORCH_CHECK(
        capture_ == nullptr && graph_ == nullptr, "This graph has captured already: call reset() before it captures again");
    device_ = current_device();
    const auto stream = current_stream(device_);
    const granule_pool_id shared{pool.first, pool.second};
    const auto* from = pool == MempoolId_t{0, 0} ? nullptr : &shared;
    check(granule_capture_begin(
        allocator(), device_, stream_handle(stream), to_granule(mode), from, &capture_));
    under_way = capture_;
  }

  void capture_end() override {
    TORCH_CHECK(capture_ != nullptr, "This graph captures nothing: call capture_begin() first");
    // The capture is over, whatever the answer is.
    auto* capture = std::exchange(capture_, nullptr);
    forget(capture);
    check(granule_capture_end(capture, &graph_));
  }

  void instantiate() override {
    has_captured();
    TORCH_CHECK(keep_, "Only a graph that was made with keep_graph=True is instantiated by the program");
  }

  void replay() override {
    has_captured();
    const auto stream = current_stream(device_);
    check(granule_graph_launch(graph_, device_, stream_handle(stream)));
  }

  void reset() override {
    TORCH_CHECK(capture_ == nullptr, "This graph is capturing: call capture_end() before reset()");
    check(granule_graph_destroy(std::exchange(graph_, nullptr)));
  }

  MempoolId_t pool() const override {
    granule_pool_id pool{};
    if (capture_ != nullptr) {
      check(granule_capture_pool(capture_, &pool));
    } else {
      has_captured();
      uint64_t count = 0;
      check(granule_graph_pools(graph_, &pool, 1, &count));
    }
    return {pool.first, pool.second};
  }

  void enable_debug_mode() override {}

  void debug_dump(const std::string&) override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "Granule's devices do not write graphs to files");
  }

 private:
  void has_captured() const {
    TORCH_CHECK(graph_ != nullptr, "This graph has captured nothing yet: call capture_begin() and capture_end() first");
  }

  static void forget(const granule_capture* capture) {
    if (under_way == capture) {
      under_way = nullptr;
    }
  }

  const bool keep_;
  c10::DeviceIndex device_ = 0;
  granule_capture* capture_ = nullptr;
  granule_graph* graph_ = nullptr;
};

std::unique_ptr<at::GraphImplInterface> make(at::GraphImplArgs wanted) {
  return std::make_unique<Graph>(wanted);
}

} // namespace

void register_hooks() {
  // Kept for ever by PyTorch's registry.
  at::RegisterPrivateUse1HooksInterface(new Hooks());
}

void register_graphs() {
  const auto key = c10::DeviceTypeName(c10::DeviceType::PrivateUse1, /*lower_case=*/false);
  if (!at::GraphImplRegistry()->Has(key)) {
    at::GraphImplRegistry()->Register(key, make);
  }
}

void retain_in_capture(granule_pool_id pool) {
  if (under_way != nullptr) {
    check(granule_capture_retain_pool(under_way, pool));
  }
}

} // namespace granule::privateuse1
