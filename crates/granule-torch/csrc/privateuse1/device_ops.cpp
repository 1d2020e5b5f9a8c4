// The kernels of the device layer: memory, views and copies. Everything else runs on the CPU, with copies.
#include "check.h"
#include "device_copy.h"
#include "device_generator.h"
#include "device_kernels.h"
#include "device_runtime.h"
#include "privateuse1.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>

namespace granule::privateuse1 {
namespace {

constexpr c10::DispatchKeySet KEYS(c10::DispatchKey::PrivateUse1);

at::Allocator* device_memory() {
  return c10::GetAllocator(c10::DeviceType::PrivateUse1);
}

// --- memory --------------------------------------------------------------------------------------------------------

void check_kind(std::optional<at::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "Only strided tensors are supported, not ", *layout);
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pinned,
    std::optional<at::MemoryFormat> format) {
  check_kind(layout, pinned);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, device_memory(), KEYS, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pinned) {
  check_kind(layout, pinned);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(size, stride, device_memory(), KEYS, c10::dtype_or_default(dtype));
}

// Makes the storage large enough for the tensor's sizes and strides.
void grow_storage(c10::TensorImpl* tensor) {
  if (tensor->numel() == 0) {
    return;
  }
  const auto bytes = at::detail::computeStorageNbytes(
      tensor->sizes(), tensor->strides(), tensor->itemsize(), tensor->storage_offset());
  const auto& storage = tensor->unsafe_storage();
  if (bytes > storage.nbytes()) {
    at::native::resize_bytes_nocuda(storage, bytes);
  }
}

const at::Tensor& resize_(
    const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
  }
  if (format.has_value()) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  grow_storage(impl);
  return self;
}

at::Tensor& set_storage_(
    at::Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(storage), offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() == nullptr) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  grow_storage(impl);
  return self;
}

at::Tensor& set_nothing_(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  return self.set_(at::Storage(at::Storage::use_byte_size_t(), 0, device_memory(), true), 0, {0}, {});
}

void record_stream(at::Tensor& self, at::Stream stream) {
  record_on_stream(self.storage().data_ptr(), stream);
}

// --- copies --------------------------------------------------------------------------------------------------------

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  copy_tensor(target, self, non_blocking);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  target.resize_(self.sizes());
  copy_tensor(target, self, false);
  return target;
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  return at::_local_scalar_dense(to_host(self));
}

// --- the rest ------------------------------------------------------------------------------------------------------

c10::DeviceIndex device_of(const torch::jit::Stack& stack, size_t begin) {
  for (auto i = begin; i < stack.size(); ++i) {
    if (stack[i].isTensor() && stack[i].toTensor().is_privateuseone()) {
      return stack[i].toTensor().device().index();
    }
  }
  return -1;
}

// Random operators draw from the device's generator, or from the one that was passed.
void use_cpu_generators(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto begin = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (*arguments[i].real_type() != *c10::OptionalType::create(c10::GeneratorType::get())) {
      continue;
    }
    auto& value = (*stack)[begin + i];
    if (value.isNone()) {
      value = cpu_generator(default_generator(device_of(*stack, begin)));
    } else if (value.toGenerator().device().is_privateuseone()) {
      value = cpu_generator(value.toGenerator());
    }
  }
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  use_cpu_generators(op, stack);
  at::native::cpu_fallback(op, stack);
}

// Convolutions are chosen by device before the fallback is reached, so they are sent to the CPU here.

at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups) {
  const auto host_bias = bias.has_value() && bias->defined() ? std::make_optional(bias->cpu()) : std::nullopt;
  return at::convolution(
             input.cpu(), weight.cpu(), host_bias, stride, padding, dilation, transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad,
    const at::Tensor& input,
    const at::Tensor& weight,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> wanted) {
  const auto bias_size = grad.size(1);
  const auto [for_input, for_weight, for_bias] = at::convolution_backward(
      grad.cpu(), input.cpu(), weight.cpu(), at::IntArrayRef(bias_size), stride, padding, dilation, transposed,
      output_padding, groups, wanted);
  const auto back = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(input.device()) : tensor;
  };
  return {back(for_input), back(for_weight), back(for_bias)};
}

} // namespace

void register_kernels() {
  kernels_of("_", c10::DispatchKey::PrivateUse1).fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());

  auto& aten = kernels_of("aten", c10::DispatchKey::PrivateUse1);
  aten.impl("empty.memory_format", empty);
  aten.impl("empty_strided", empty_strided);
  aten.impl("resize_", resize_);
  aten.impl("set_.source_Storage", at::native::set_);
  aten.impl("set_.source_Storage_storage_offset", set_storage_);
  aten.impl("set_.source_Tensor", at::native::set_tensor_);
  aten.impl("set_", set_nothing_);
  aten.impl("is_set_to", at::native::is_set_to);
  aten.impl("record_stream", record_stream);

  aten.impl("as_strided", at::native::as_strided_tensorimpl);
  aten.impl("view", at::native::view);
  aten.impl("_reshape_alias", at::native::_reshape_alias);
  aten.impl("unfold", at::native::unfold);
  aten.impl("view_as_real", at::native::view_as_real);
  aten.impl("view_as_complex", at::native::view_as_complex);

  aten.impl("_copy_from", copy_from);
  aten.impl("_copy_from_and_resize", copy_from_and_resize);
  aten.impl("_local_scalar_dense", local_scalar_dense);
  aten.impl("convolution_overrideable", convolution);
  aten.impl("convolution_backward_overrideable", convolution_backward);

  // Copies see to these bits themselves. PyTorch would clear them with another copy, and that with another.
  kernels_of("aten", c10::DispatchKey::Conjugate).impl("_copy_from", torch::CppFunction::makeFallthrough());
  kernels_of("aten", c10::DispatchKey::Negative).impl("_copy_from", torch::CppFunction::makeFallthrough());

  register_autocast();
}

} // namespace granule::privateuse1
