// Mixed precision: the policies are PyTorch's own, those of CUDA.
#include "device_kernels.h"

#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/norm.h>

namespace granule::privateuse1 {

// The lists below name types and policies without their namespaces.
using namespace at;
using at::autocast::CastPolicy;

#define FEWER_BITS(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FULL_BITS(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FULL_BITS_UNLESS_ASKED(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

namespace {

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "binary_cross_entropy overflows in 16 bits: under autocast use binary_cross_entropy_with_logits (BCEWithLogitsLoss), which "
      "takes what comes before the sigmoid, or switch autocast off around it");
}

} // namespace

void register_autocast() {
  constexpr auto KEY = c10::DispatchKey::AutocastPrivateUse1;
  kernels_of("_", KEY).fallback(torch::CppFunction::makeFallthrough());
  // The name that the lists use.
  auto& m = kernels_of("aten", KEY);
  AT_FORALL_LOWER_PRECISION_FP(FEWER_BITS)
  AT_FORALL_FP32(FULL_BITS)
  AT_FORALL_FP32_SET_OPT_DTYPE(FULL_BITS_UNLESS_ASKED)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(WIDEST)
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

} // namespace granule::privateuse1
