#include "device_copy.h"

#include "check.h"
#include "device_runtime.h"
#include "privateuse1.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Event.h>

namespace granule::privateuse1 {
namespace {

c10::Stream stream_on(const at::Tensor& tensor) {
  return current_stream(tensor.device().index());
}

// The bytes from a tensor's first element to its last, gaps included.
size_t span(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
}

// Whether the bytes of one are those of the other.
bool alike(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
      a.is_non_overlapping_and_dense() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

void queue(void* target, const void* source, size_t bytes, int32_t kind, c10::Stream stream) {
  check(granule_copy_on_stream(
      allocator(), target, source, bytes, kind, stream.device_index(), stream_handle(stream)));
}

// Lets the host go on at once if its memory is pinned here and `non_blocking`, else waits.
void settle(const at::Tensor& host, c10::Stream stream, bool non_blocking) {
  const auto& memory = host.storage().data_ptr();
  const auto kept = non_blocking && host.is_pinned() &&
      at::getHostAllocator(c10::DeviceType::PrivateUse1)
          ->record_event(memory.get(), memory.get_context(), stream);
  if (!kept) {
    synchronize_stream(stream);
  }
}

void copy_on_devices(const at::Tensor& target, const at::Tensor& source) {
  const auto from = stream_on(source);
  const auto to = stream_on(target);
  if (from.device() == to.device()) {
    queue(target.mutable_data_ptr(), source.const_data_ptr(), span(source), GRANULE_COPY_DEVICE_TO_DEVICE, to);
    return;
  }
  // The source's stream copies, between what the target's stream was given and what it will be given.
  c10::Event before(c10::DeviceType::PrivateUse1);
  before.record(to);
  before.block(from);
  check(granule_copy_async(
      allocator(), target.mutable_data_ptr(), to.device_index(), source.const_data_ptr(), from.device_index(),
      span(source), from.device_index(), stream_handle(from)));
  c10::Event after(c10::DeviceType::PrivateUse1);
  after.record(from);
  after.block(to);
}

// Copies into a target with gaps, which belong to others: one copy per run of neighbouring elements.
class Runs {
 public:
  // `source` is contiguous and on the host.
  Runs(const at::Tensor& target, const at::Tensor& source)
      : target_(target), stream_(stream_on(target)), from_(static_cast<const char*>(source.const_data_ptr())) {
    const auto item = static_cast<int64_t>(target.itemsize());
    run_ = item;
    outer_ = target.dim();
    while (outer_ > 0 &&
           (target.size(outer_ - 1) == 1 || target.stride(outer_ - 1) * item == run_)) {
      run_ *= target.size(--outer_);
    }
  }

  void copy() {
    walk(0, static_cast<char*>(target_.mutable_data_ptr()));
    synchronize_stream(stream_);
  }

 private:
  void walk(int64_t dim, char* to) {
    if (dim == outer_) {
      queue(to, from_, run_, GRANULE_COPY_HOST_TO_DEVICE, stream_);
      from_ += run_;
      return;
    }
    const auto step = target_.stride(dim) * static_cast<int64_t>(target_.itemsize());
    for (int64_t i = 0; i < target_.size(dim); ++i) {
      walk(dim + 1, to + i * step);
    }
  }

  const at::Tensor& target_;
  c10::Stream stream_;
  const char* from_;
  int64_t run_;
  int64_t outer_;
};

void copy_to_device(const at::Tensor& target, const at::Tensor& source, bool non_blocking) {
  if (alike(target, source)) {
    const auto stream = stream_on(target);
    queue(target.mutable_data_ptr(), source.const_data_ptr(), span(source), GRANULE_COPY_HOST_TO_DEVICE, stream);
    settle(source, stream, non_blocking);
    return;
  }
  const auto dense = target.is_non_overlapping_and_dense();
  const auto options = target.options().device(at::kCPU);
  auto staged = dense ? at::empty_strided(target.sizes(), target.strides(), options)
                      : at::empty(target.sizes(), options);
  staged._set_conj(target.is_conj());
  staged._set_neg(target.is_neg());
  staged.copy_(source);
  if (dense) {
    copy_to_device(target, staged, false);
  } else {
    Runs(target, staged).copy();
  }
}

} // namespace

at::Tensor to_host(const at::Tensor& tensor) {
  const auto bytes = tensor.numel() == 0 ? 0 : span(tensor);
  auto memory = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  if (bytes != 0) {
    const auto stream = stream_on(tensor);
    queue(memory.mutable_data_ptr(), tensor.const_data_ptr(), bytes, GRANULE_COPY_DEVICE_TO_HOST, stream);
    synchronize_stream(stream);
  }
  auto host = at::empty({0}, tensor.options().device(at::kCPU));
  host.set_(memory.storage(), 0, tensor.sizes(), tensor.strides());
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

void copy_tensor(const at::Tensor& target, const at::Tensor& unexpanded, bool non_blocking) {
  if (target.numel() == 0 || target.is_same(unexpanded)) {
    return;
  }
  const auto source = unexpanded.expand_as(target);
  if (source.is_cpu()) {
    copy_to_device(target, source, non_blocking);
  } else if (!alike(target, source)) {
    target.copy_(to_host(source));
  } else if (target.is_cpu()) {
    const auto stream = stream_on(source);
    queue(target.mutable_data_ptr(), source.const_data_ptr(), span(source), GRANULE_COPY_DEVICE_TO_HOST, stream);
    settle(target, stream, non_blocking);
  } else {
    copy_on_devices(target, source);
  }
}

} // namespace granule::privateuse1
