// granule::cuda_resource among CCCL's resources, over the simulated device.
#include "check.hpp"

#include <utility>

using granule::cuda_resource;
using Any = cuda::mr::any_resource<cuda::mr::device_accessible>;
using Ref = cuda::mr::resource_ref<cuda::mr::device_accessible>;
constexpr std::size_t MIB = 1 << 20;

static_assert(cuda::mr::synchronous_resource<cuda_resource>);
static_assert(cuda::mr::resource<cuda_resource>);
static_assert(cuda::mr::resource_with<cuda_resource, cuda::mr::device_accessible>);
static_assert(!cuda::has_property<cuda_resource, cuda::mr::host_accessible>);

struct Refusal : std::bad_alloc {
  explicit Refusal(const char* text) : text(text) {}
  std::string text;
  const char* what() const noexcept override { return text.c_str(); }
};

static void passed_on(const cuda_resource& memory) {
  const auto stream = as_stream(stream_of(memory.allocator()));
  Any owned{memory};
  cuda_resource named = memory;
  Ref borrowed{named};
  void* const a = owned.allocate(stream, 1000, 256);
  void* const b = borrowed.allocate(stream, MIB, 512);
  CHECK(reinterpret_cast<std::uintptr_t>(b) % 512 == 0);
  CHECK(live_in(memory.allocator()) == 1024 + static_cast<std::int64_t>(MIB));
  // Either takes the other's memory back: they are the same resource.
  CHECK(borrowed == owned);
  borrowed.deallocate(stream, a, 1000, 256);
  owned.deallocate(stream, b, MIB, 512);
  auto shared = cuda::mr::make_shared_resource<cuda_resource>(memory);
  shared.deallocate_sync(shared.allocate_sync(4096, 256), 4096, 256);
  CHECK(owned.allocate(stream, 0, 256) == nullptr);
  owned.deallocate(stream, nullptr, 0, 256);
  CHECK(live_in(memory.allocator()) == 0);
}

static void equality(const cuda_resource& memory) {
  CHECK(memory == cuda_resource(memory));
  CHECK(memory != cuda_resource(memory.allocator(), 1));
  CHECK(memory != cuda_resource::make(0, "", "openreg"));
  CHECK(cuda_resource(0) == cuda_resource(0));
}

// Memory comes back in the order of the stream that it is given back on, whichever it was asked for.
static void order_of_streams(cuda_resource memory) {
  granule_allocator* const a = memory.allocator();
  const std::uint64_t asked = stream_of(a), used = stream_of(a);
  void* const first = memory.allocate(as_stream(asked), 4 * MIB, 256);
  Held held(a, used);
  memory.deallocate(as_stream(used), first, 4 * MIB, 256);
  void* const second = memory.allocate(as_stream(asked), 4 * MIB, 256);
  CHECK(second != first);
  held.let_go();
  OK(granule_stream_synchronize(a, 0, used));
  CHECK(memory.allocate(as_stream(asked), 4 * MIB, 256) == first);
  // On its own stream, the next request has it at once, though the stream is not that far.
  Held again(a, asked);
  memory.deallocate(as_stream(asked), first, 4 * MIB, 256);
  CHECK(memory.allocate(as_stream(asked), 4 * MIB, 256) == first);
  again.let_go();
  memory.deallocate(as_stream(asked), first, 4 * MIB, 256);
  memory.deallocate(as_stream(asked), second, 4 * MIB, 256);
  OK(granule_stream_synchronize(a, 0, asked));
  CHECK(live_in(a) == 0);
}

// Work of the default stream may still use what its cache hands out, so a request without a stream waits for it.
static void without_a_stream(cuda_resource memory) {
  granule_allocator* const a = memory.allocator();
  memory.deallocate(as_stream(0), memory.allocate(as_stream(0), MIB, 256), MIB, 256);
  Held held(a, 0);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    held.let_go();
  });
  void* const ptr = memory.allocate_sync(MIB, 256);
  CHECK(held.is_over());
  other.join();
  memory.deallocate_sync(ptr, MIB, 256);
  CHECK(live_in(a) == 0);
}

static void refusals(cuda_resource memory) {
  const auto stream = as_stream(0);
  const std::string full = thrown_by<granule::out_of_memory>([&] { (void)memory.allocate(stream, 16ull << 30, 256); });
  CHECK(full.find("16.00 GiB") != std::string::npos);
  CHECK(full == thrown_by<std::bad_alloc>([&] { (void)memory.allocate_sync(16ull << 30, 256); }));
  granule::basic_cuda_resource<Refusal> own(memory.allocator(), 0);
  CHECK(full == thrown_by<Refusal>([&] { (void)own.allocate(stream, 16ull << 30, 256); }));
  for (std::size_t wrong : {0, 3, 1024}) {
    const std::string text = thrown_by<std::invalid_argument>([&] { (void)memory.allocate(stream, 8, wrong); });
    CHECK(text.find("the alignment is " + std::to_string(wrong)) != std::string::npos);
  }
  const std::string none = thrown_by<std::invalid_argument>([&] { cuda_resource(memory.allocator(), 2); });
  CHECK(none.find("there is no device 2") != std::string::npos);
  thrown_by<std::invalid_argument>([] { cuda_resource(nullptr, 0); });
  const std::string settings = thrown_by<granule::error>([] { cuda_resource::make(0, "no_such_option:1", "openreg"); });
  CHECK(settings.find("no_such_option") != std::string::npos);
  CHECK(live_in(memory.allocator()) == 0);
}

// The allocator lives as long as anything that has a copy.
static void who_keeps_it() {
  Any last = [] {
    cuda_resource made = cuda_resource::make(0, "", "openreg");
    return Any{made};
  }();
  void* const ptr = last.allocate_sync(100, 256);
  CHECK(ptr != nullptr);
  last.deallocate_sync(ptr, 100, 256);
}

int main() {
  for (const char* settings : {"policy:pytorch", "policy:granule", "expandable_segments:True"}) {
    const cuda_resource memory = cuda_resource::make(0, settings, "openreg");
    passed_on(memory);
    equality(memory);
    order_of_streams(memory);
    without_a_stream(memory);
    refusals(memory);
  }
  who_keeps_it();
  std::puts("fine");
}
