#include "device_generator.h"

#include "device_runtime.h"

#include <ATen/CPUGeneratorImpl.h>

#include <deque>
#include <mutex>

namespace granule::privateuse1 {
namespace {

struct DeviceGenerator final : c10::GeneratorImpl {
  DeviceGenerator(c10::DeviceIndex device, at::Generator cpu)
      : GeneratorImpl(
            {c10::DeviceType::PrivateUse1, device}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu(std::move(cpu)) {}

  void set_current_seed(uint64_t seed) override {
    cpu.set_current_seed(seed);
  }
  void set_offset(uint64_t offset) override {
    cpu.set_offset(offset);
  }
  uint64_t get_offset() const override {
    return cpu.get_offset();
  }
  uint64_t current_seed() const override {
    return cpu.current_seed();
  }
  uint64_t seed() override {
    return cpu.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    cpu.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return cpu.unsafeGetGeneratorImpl()->get_state();
  }

  at::Generator cpu;

 private:
  GeneratorImpl* clone_impl() const override {
    return new DeviceGenerator(device().index(), cpu.clone());
  }
};

} // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  if (device == -1) {
    device = current_device();
  }
  return at::make_generator<DeviceGenerator>(device, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex lock;
  // References into a deque stay good while it grows.
  static auto* generators = new std::deque<at::Generator>();
  if (device == -1) {
    device = current_device();
  }
  TORCH_CHECK(device >= 0 && device < device_count(), "invalid device index ", int{device});
  std::lock_guard<std::mutex> guard(lock);
  while (generators->size() <= static_cast<size_t>(device)) {
    generators->push_back(new_generator(static_cast<c10::DeviceIndex>(generators->size())));
  }
  return (*generators)[device];
}

at::Generator cpu_generator(const at::Generator& generator) {
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->cpu;
}

} // namespace granule::privateuse1
