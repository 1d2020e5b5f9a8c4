/// Granule's memory as a resource of CCCL (cuda::mr), for RMM 26.06 and later and for whatever else takes one.
///
///     granule::cuda_resource memory{0};                                // the process's allocator, device 0
///     rmm::device_buffer buffer{1000, stream, memory};                  // handed over
///     rmm::mr::set_current_device_resource(granule::basic_cuda_resource<rmm::out_of_memory>{0});
///
/// C++17. It needs granule.h, the headers of CCCL and of the CUDA runtime, and at link time libgranule_capi; it calls nothing of
/// the CUDA runtime itself.
#ifndef GRANULE_CUDA_RESOURCE_HPP
#define GRANULE_CUDA_RESOURCE_HPP

#include <granule.h>

#include <cuda/std/version>

// In earlier releases the concepts have other names and calls. Nothing else is said about those.
#if CCCL_VERSION < 3002000
#  define GRANULE_TEXT_OF(value) #value
#  define GRANULE_TEXT(value) GRANULE_TEXT_OF(value)
#  pragma message("this CCCL has CCCL_VERSION " GRANULE_TEXT(CCCL_VERSION))
#  error "granule/cuda_resource.hpp needs CCCL 3.2 or later (CCCL_VERSION 3002000): install nvidia-cuda-cccl 13.2 or RMM 26.06"
#else

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

namespace granule {

/// There is no memory, after every remedy was tried. The text is Granule's report.
class out_of_memory : public std::bad_alloc {
 public:
  explicit out_of_memory(const char* report) : report_(report) {}
  const char* what() const noexcept override { return report_.what(); }

 private:
  // A text that is copied without throwing.
  std::runtime_error report_;
};

/// Anything else that the library refused. The text says what to do.
class error : public std::runtime_error {
 public:
  error(granule_status status, const char* text) : std::runtime_error(text), status_(status) {}
  granule_status status() const noexcept { return status_; }

 private:
  granule_status status_;
};

/// One device's memory of one allocator, in stream order and not. A copy stands for the same memory, and keeps the allocator.
///
/// `OutOfMemory` is what a request throws that finds no memory; a `const char*` makes it. Any thread may use a resource at any time.
template <class OutOfMemory = out_of_memory>
class basic_cuda_resource {
 public:
  using default_queries = ::cuda::mr::properties_list<::cuda::mr::device_accessible>;

  /// No request may ask for more.
  static constexpr std::size_t largest_alignment = 512;

  /// The device's memory in the process's allocator, which the environment makes (GRANULE_BACKEND, GRANULE_CONF). May block
  /// while a driver starts. Throws where there is no device.
  explicit basic_cuda_resource(int device) : basic_cuda_resource(of_process(), device) {}

  /// The device's memory in an allocator of the program's own, which outlives all copies of the resource.
  basic_cuda_resource(granule_allocator* allocator, int device)
      : basic_cuda_resource(std::shared_ptr<granule_allocator>(allocator, [](granule_allocator*) {}), device) {}

  /// The same, of an allocator that ends with whoever has it last.
  basic_cuda_resource(std::shared_ptr<granule_allocator> allocator, int device)
      : allocator_(std::move(allocator)), device_(device) {
    if (!allocator_) throw std::invalid_argument("granule: the resource was given no allocator");
    std::int32_t devices = 0;
    succeed(granule_device_count(allocator_.get(), &devices));
    if (device < 0 || device >= devices)
      throw std::invalid_argument("granule: there is no device " + std::to_string(device) + ": the allocator serves " +
                                  std::to_string(devices) + ", counted from 0");
  }

  /// A resource over an allocator of its own. The settings are those of PyTorch or Granule, such as "policy:granule"; null takes
  /// those of the environment, and so does a null backend.
  static basic_cuda_resource make(int device, const char* settings = nullptr, const char* backend = nullptr) {
    granule_options options{sizeof(granule_options), backend, settings, nullptr, nullptr};
    granule_allocator* made = nullptr;
    succeed(granule_allocator_create(&options, &made));
    return {std::shared_ptr<granule_allocator>(made, [](granule_allocator* a) { granule_allocator_destroy(a); }), device};
  }

  /// Memory for work of the stream. Blocks only where the cache has no fit. 0 bytes give null.
  [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t bytes,
                               std::size_t alignment = ::cuda::mr::default_cuda_malloc_alignment) {
    return take(handle(stream), bytes, alignment);
  }

  /// Takes memory back once work that is queued on the stream by now is done, whichever stream the memory was asked for. Never blocks.
  void deallocate(::cuda::stream_ref stream, void* ptr, std::size_t bytes,
                  std::size_t alignment = ::cuda::mr::default_cuda_malloc_alignment) noexcept {
    note(granule_record_stream(allocator_.get(), ptr, device_, handle(stream)));
    deallocate_sync(ptr, bytes, alignment);
  }

  /// Memory that any stream may use at once. Waits for work of the default stream, whose cache it is from.
  [[nodiscard]] void* allocate_sync(std::size_t bytes,
                                    std::size_t alignment = ::cuda::mr::default_cuda_malloc_alignment) {
    void* const ptr = take(0, bytes, alignment);
    try {
      succeed(granule_stream_synchronize(allocator_.get(), device_, 0));
    } catch (...) {
      deallocate_sync(ptr, bytes, alignment);
      throw;
    }
    return ptr;
  }

  /// Takes memory back with which all streams are done.
  void deallocate_sync(void* ptr, std::size_t, std::size_t = ::cuda::mr::default_cuda_malloc_alignment) noexcept {
    note(granule_free_on(allocator_.get(), ptr, device_));
  }

  /// For everything else: statistics, snapshots, settings.
  granule_allocator* allocator() const noexcept { return allocator_.get(); }
  int device() const noexcept { return device_; }

  /// Whether memory of one may be given back to the other.
  friend bool operator==(const basic_cuda_resource& a, const basic_cuda_resource& b) noexcept {
    return a.allocator_.get() == b.allocator_.get() && a.device_ == b.device_;
  }
  friend bool operator!=(const basic_cuda_resource& a, const basic_cuda_resource& b) noexcept { return !(a == b); }

  friend constexpr void get_property(const basic_cuda_resource&, ::cuda::mr::device_accessible) noexcept {}

 private:
  static granule_allocator* of_process() {
    granule_allocator* shared = nullptr;
    succeed(granule_pluggable_allocator(&shared));
    return shared;
  }

  static std::uint64_t handle(::cuda::stream_ref stream) noexcept { return reinterpret_cast<std::uintptr_t>(stream.get()); }

  void* take(std::uint64_t stream, std::size_t bytes, std::size_t alignment) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > largest_alignment)
      throw std::invalid_argument("granule: the alignment is " + std::to_string(alignment) +
                                  ": it must be a power of two, and at most " + std::to_string(largest_alignment));
    void* ptr = nullptr;
    succeed(granule_malloc(allocator_.get(), bytes, device_, stream, &ptr));
    return ptr;
  }

  static void succeed(granule_status status) {
    if (status == GRANULE_OUT_OF_MEMORY || status == GRANULE_REJECTED) throw OutOfMemory(granule_last_error());
    if (status != GRANULE_OK) throw error(status, granule_last_error());
  }

  // Whoever gives memory back is often a destructor, which cannot be told that it failed.
  static void note(granule_status status) noexcept {
    if (status != GRANULE_OK && status != GRANULE_DRIVER_GONE) std::fprintf(stderr, "granule: %s\n", granule_last_error());
  }

  std::shared_ptr<granule_allocator> allocator_;
  int device_;
};

using cuda_resource = basic_cuda_resource<>;

static_assert(::cuda::mr::resource_with<cuda_resource, ::cuda::mr::device_accessible>,
              "this CCCL asks more of a resource than Granule's has");
static_assert(!::cuda::mr::resource_with<cuda_resource, ::cuda::mr::host_accessible>, "device memory is not the host's");

}  // namespace granule

#endif  // CCCL_VERSION
#endif  // GRANULE_CUDA_RESOURCE_HPP
