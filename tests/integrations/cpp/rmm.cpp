// RMM on granule::cuda_resource, over the simulated device: what of RMM asks no CUDA runtime for a device.
#include "check.hpp"

#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/aligned_resource_adaptor.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/polymorphic_allocator.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/mr/thread_safe_resource_adaptor.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>

using Resource = granule::basic_cuda_resource<rmm::out_of_memory>;
using Any = cuda::mr::any_resource<cuda::mr::device_accessible>;

// What a program does with any of RMM's resources.
static void takes_and_gives(Any memory, granule_allocator* a, cuda::stream_ref stream, const char* which) {
  const std::int64_t before = live_in(a);
  void* const small = memory.allocate(stream, 1000, 256);
  void* const large = memory.allocate(stream, 3 << 20, 256);
  if (live_in(a) < before + 1024 + (3 << 20)) {
    std::fprintf(stderr, "%s: the memory is not Granule's\n", which);
    std::exit(1);
  }
  memory.deallocate(stream, small, 1000, 256);
  memory.deallocate(stream, large, 3 << 20, 256);
}

static void adaptors(const Resource& memory, cuda::stream_ref stream) {
  granule_allocator* const a = memory.allocator();
  takes_and_gives(memory, a, stream, "granule");
  rmm::mr::statistics_resource_adaptor counted{Any{memory}};
  takes_and_gives(counted, a, stream, "statistics");
  CHECK(counted.get_bytes_counter().peak == 1000 + (3 << 20) && counted.get_bytes_counter().value == 0);
  rmm::mr::limiting_resource_adaptor limited{Any{memory}, 8 << 20};
  takes_and_gives(limited, a, stream, "limiting");
  thrown_by<rmm::out_of_memory>([&] { (void)limited.allocate(stream, 9 << 20, 256); });
  takes_and_gives(rmm::mr::thread_safe_resource_adaptor{Any{memory}}, a, stream, "thread_safe");
  takes_and_gives(rmm::mr::tracking_resource_adaptor{Any{memory}}, a, stream, "tracking");
  rmm::mr::aligned_resource_adaptor aligned{Any{memory}, 4096};
  void* const wide = aligned.allocate(stream, 5000, 256);
  CHECK(reinterpret_cast<std::uintptr_t>(wide) % 4096 == 0);
  aligned.deallocate(stream, wide, 5000, 256);
  CHECK(live_in(a) == 0);
}

// RMM's callback for failures catches its own type, which the resource was told to throw.
static void failures(const Resource& memory, cuda::stream_ref stream) {
  int asked = 0;
  rmm::mr::failure_callback_resource_adaptor<> told{
      Any{memory}, [](std::size_t, void* count) { return ++*static_cast<int*>(count) < 3; }, &asked};
  const std::string text = thrown_by<rmm::out_of_memory>([&] { (void)told.allocate(stream, 16ull << 30, 256); });
  CHECK(asked == 3 && text.find("16.00 GiB") != std::string::npos);
}

static void containers(const Resource& memory, cuda::stream_ref stream) {
  granule_allocator* const a = memory.allocator();
  {
    rmm::device_buffer buffer{1000, stream, memory};
    CHECK(buffer.size() == 1000 && live_in(a) == 1024);
    rmm::device_buffer moved{std::move(buffer)};
    CHECK(live_in(a) == 1024);
  }
  CHECK(live_in(a) == 0);
  rmm::mr::polymorphic_allocator<float> floats{memory};
  float* const ptr = floats.allocate(100, stream);
  CHECK(live_in(a) == 512);
  floats.deallocate(ptr, 100, stream);
  CHECK(live_in(a) == 0);
}

// A device's resource, by its number: asking for the current device would be the runtime's part.
static void of_a_device(const Resource& memory, cuda::stream_ref stream) {
  granule_allocator* const a = memory.allocator();
  rmm::mr::set_per_device_resource(rmm::cuda_device_id{0}, memory);
  takes_and_gives(rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{0}), a, stream, "per_device");
  Any ours = rmm::mr::reset_per_device_resource(rmm::cuda_device_id{0});
  CHECK(ours == Any{memory});
}

int main() {
  const Resource memory = Resource::make(0, "policy:granule", "openreg");
  const auto stream = as_stream(stream_of(memory.allocator()));
  adaptors(memory, stream);
  failures(memory, stream);
  containers(memory, stream);
  of_a_device(memory, stream);
  std::puts("fine");
}
