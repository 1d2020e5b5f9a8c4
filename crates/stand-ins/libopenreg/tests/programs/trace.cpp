#include "check.h"

// As PyTorch's library declares it: all members are out of line.
namespace openreg {
namespace profiler {
class OpenRegTracer {
 public:
  static OpenRegTracer& instance();
  void enableActivityTracing();
  void disableActivityTracing();
  bool isActivityTracingEnabled() const;
  void pushExternalCorrelationId(uint64_t id);
  void popExternalCorrelationId();
  uint64_t getExternalCorrelationId() const;
};
}  // namespace profiler
}  // namespace openreg
using openreg::profiler::OpenRegTracer;

TEST(tracing_is_switched_on_and_off) {
  OpenRegTracer& tracer = OpenRegTracer::instance();
  CHECK(&tracer == &OpenRegTracer::instance());
  CHECK(!tracer.isActivityTracingEnabled());
  OK(orActivityEnableTracing());
  CHECK(tracer.isActivityTracingEnabled());
  OK(orActivityDisableTracing());
  CHECK(!tracer.isActivityTracingEnabled());
  tracer.enableActivityTracing();
  CHECK(tracer.isActivityTracingEnabled());
  tracer.disableActivityTracing();
  CHECK(!tracer.isActivityTracingEnabled());
}

TEST(correlations_are_a_stack) {
  uint64_t id = 7;
  OK(orActivityPopExternalCorrelationId(&id));
  CHECK(id == 0);
  OK(orActivityPushExternalCorrelationId(42));
  OK(orActivityPushExternalCorrelationId(UINT64_MAX));
  OK(orActivityPopExternalCorrelationId(&id));
  CHECK(id == UINT64_MAX);
  OK(orActivityPopExternalCorrelationId(nullptr));
  OK(orActivityPopExternalCorrelationId(&id));
  CHECK(id == 0);
}

TEST(the_class_sees_the_same_stack) {
  OpenRegTracer& tracer = OpenRegTracer::instance();
  CHECK(tracer.getExternalCorrelationId() == 0);
  tracer.pushExternalCorrelationId(42);
  OK(orActivityPushExternalCorrelationId(99));
  CHECK(tracer.getExternalCorrelationId() == 99);
  tracer.popExternalCorrelationId();
  CHECK(tracer.getExternalCorrelationId() == 42);
  uint64_t id = 0;
  OK(orActivityPopExternalCorrelationId(&id));
  CHECK(id == 42);
  tracer.popExternalCorrelationId();
  CHECK(tracer.getExternalCorrelationId() == 0);
}

TEST(threads_have_stacks_of_their_own) {
  OK(orActivityPushExternalCorrelationId(5));
  std::thread([] { CHECK(OpenRegTracer::instance().getExternalCorrelationId() == 0); }).join();
  OK(orActivityPopExternalCorrelationId(nullptr));
}
