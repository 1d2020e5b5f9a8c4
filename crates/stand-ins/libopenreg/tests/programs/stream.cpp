#include "check.h"

TEST(streams_come_and_go) {
  orStream_t stream = nullptr;
  OK(orStreamCreate(&stream));
  CHECK(stream != nullptr);
  OK(orStreamDestroy(stream));
}

TEST(null_is_refused_everywhere) {
  int priority = -1;
  orStream_t stream = new_stream();
  REFUSED(orStreamCreate(nullptr));
  REFUSED(orStreamCreateWithPriority(nullptr, 0, 0));
  REFUSED(orStreamDestroy(nullptr));
  REFUSED(orStreamQuery(nullptr));
  REFUSED(orStreamSynchronize(nullptr));
  REFUSED(orStreamGetPriority(nullptr, &priority));
  REFUSED(orStreamGetPriority(stream, nullptr));
  REFUSED(openreg::addTaskToStream(nullptr, [] {}));
  REFUSED(orLaunchKernel(nullptr, [] {}));
  CHECK(priority == -1);
  OK(orStreamDestroy(stream));
}

TEST(priorities_have_bounds) {
  orStream_t stream = nullptr;
  REFUSED(orStreamCreateWithPriority(&stream, 0, -1));
  REFUSED(orStreamCreateWithPriority(&stream, 0, 2));
  CHECK(stream == nullptr);
}

TEST(a_stream_tells_its_priority) {
  for (int asked : {0, 1}) {
    orStream_t stream = nullptr;
    int priority = -1;
    OK(orStreamCreateWithPriority(&stream, 12345, asked));
    OK(orStreamGetPriority(stream, &priority));
    CHECK(priority == asked);
    OK(orStreamDestroy(stream));
  }
  orStream_t stream = new_stream();
  int priority = -1;
  OK(orStreamGetPriority(stream, &priority));
  CHECK(priority == 0);
  OK(orStreamDestroy(stream));
}

TEST(tasks_run_once_and_in_order) {
  orStream_t stream = new_stream();
  std::vector<int> seen;
  for (int task = 0; task < 1000; ++task) {
    OK(openreg::addTaskToStream(stream, [&seen, task] { seen.push_back(task); }));
  }
  OK(orStreamSynchronize(stream));
  CHECK(seen.size() == 1000);
  for (size_t task = 0; task < seen.size(); ++task) {
    if (seen[task] != static_cast<int>(task)) CHECK(seen[task] == static_cast<int>(task));
  }
  OK(orStreamDestroy(stream));
}

TEST(tasks_run_on_a_thread_of_the_stream) {
  orStream_t first = new_stream(), second = new_stream();
  std::thread::id on[3];
  OK(openreg::addTaskToStream(first, [&] { on[0] = std::this_thread::get_id(); }));
  OK(openreg::addTaskToStream(second, [&] { on[1] = std::this_thread::get_id(); }));
  OK(openreg::addTaskToStream(first, [&] { on[2] = std::this_thread::get_id(); }));
  OK(orStreamSynchronize(first));
  OK(orStreamSynchronize(second));
  CHECK(on[0] == on[2] && on[0] != on[1] && on[0] != std::this_thread::get_id());
  OK(orStreamDestroy(first));
  OK(orStreamDestroy(second));
}

TEST(a_task_ends_with_its_call) {
  orStream_t stream = new_stream();
  auto kept = std::make_shared<int>(7);
  std::weak_ptr<int> seen = kept;
  OK(openreg::addTaskToStream(stream, [kept] { (void)*kept; }));
  kept.reset();
  OK(orStreamSynchronize(stream));
  CHECK(seen.expired());
  OK(orStreamDestroy(stream));
}

TEST(an_empty_task_is_refused) {
  orStream_t stream = new_stream();
  REFUSED(openreg::addTaskToStream(stream, nullptr));
  OK(orStreamQuery(stream));
  OK(orStreamDestroy(stream));
}

TEST(a_large_task_arrives_whole) {
  orStream_t stream = new_stream();
  struct { char bytes[4096]; } large;
  std::memset(&large, 'x', sizeof large);
  size_t found = 0;
  OK(openreg::addTaskToStream(stream, [large, &found] {
    for (char byte : large.bytes) found += byte == 'x';
  }));
  OK(orStreamSynchronize(stream));
  CHECK(found == 4096);
  OK(orStreamDestroy(stream));
}

static void add(int a, const std::string& b, int* sum) { *sum = a + std::stoi(b); }

TEST(a_kernel_gets_copies_of_its_arguments) {
  orStream_t stream = new_stream();
  Gate gate;
  gate.hold(stream);
  int sum = 0, first = 40;
  std::string second = "2";
  OK(orLaunchKernel(stream, add, first, second, &sum));
  OK(orLaunchKernel(stream, &add, 1, std::string("1"), &first));
  second = "1000";
  gate.open();
  OK(orStreamSynchronize(stream));
  CHECK(sum == 42);
  CHECK(first == 2);
  OK(orStreamDestroy(stream));
}

TEST(a_stream_is_busy_until_its_last_task_has_ended) {
  orStream_t stream = new_stream();
  OK(orStreamQuery(stream));
  Gate gate;
  gate.hold(stream);
  CHECK(orStreamQuery(stream) == orErrorNotReady);
  gate.wait_until_reached();
  CHECK(orStreamQuery(stream) == orErrorNotReady);
  gate.open();
  OK(orStreamSynchronize(stream));
  OK(orStreamQuery(stream));
  OK(orStreamDestroy(stream));
}

TEST(destroying_a_stream_does_what_is_queued) {
  orStream_t stream = new_stream();
  std::atomic<int> done{0};
  for (int task = 0; task < 100; ++task) {
    OK(openreg::addTaskToStream(stream, [&done] { ++done; }));
  }
  OK(orStreamDestroy(stream));
  CHECK(done == 100);
}

TEST(a_destroyed_stream_is_refused) {
  orStream_t stream = new_stream();
  OK(orStreamDestroy(stream));
  orStream_t another = new_stream();
  CHECK(another != stream);
  REFUSED(orStreamDestroy(stream));
  REFUSED(orStreamQuery(stream));
  REFUSED(orStreamSynchronize(stream));
  REFUSED(openreg::addTaskToStream(stream, [] {}));
  REFUSED(orMemcpyAsync(nullptr, nullptr, 0, orMemcpyHostToHost, stream));
  OK(orStreamDestroy(another));
}

TEST(a_task_may_call_the_library) {
  orStream_t stream = new_stream(), other = new_stream();
  char back[4] = {};
  OK(openreg::addTaskToStream(stream, [&] {
    char there[4] = "abc";
    void* device = new_memory(4);
    OK(orMemcpy(device, there, 4, orMemcpyHostToDevice));
    OK(orMemcpyAsync(back, device, 4, orMemcpyDeviceToHost, other));
    OK(orStreamSynchronize(other));
    OK(orFree(device));
  }));
  OK(orStreamSynchronize(stream));
  CHECK(std::strcmp(back, "abc") == 0);
  OK(orStreamDestroy(stream));
  OK(orStreamDestroy(other));
}

TEST(a_task_cannot_wait_for_its_own_stream) {
  orStream_t stream = new_stream();
  OK(openreg::addTaskToStream(stream, [stream] {
    REFUSED(orStreamSynchronize(stream));
    REFUSED(orDeviceSynchronize());
    REFUSED(orStreamDestroy(stream));
  }));
  OK(orStreamSynchronize(stream));
  OK(orStreamDestroy(stream));
}

TEST(the_device_waits_for_its_streams) {
  OK(orDeviceSynchronize());
  orStream_t first = new_stream(), second = new_stream();
  std::atomic<int> done{0};
  auto slow = [&done] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++done;
  };
  OK(openreg::addTaskToStream(first, slow));
  OK(openreg::addTaskToStream(second, slow));
  OK(orDeviceSynchronize());
  CHECK(done == 2);
  OK(orStreamDestroy(first));
  OK(orStreamDestroy(second));
}

TEST(a_device_waits_for_no_others_streams) {
  orStream_t stream = new_stream();
  Gate gate;
  gate.hold(stream);
  OK(orSetDevice(1));
  OK(orDeviceSynchronize());
  CHECK(orStreamQuery(stream) == orErrorNotReady);
  gate.open();
  OK(orStreamDestroy(stream));
}

TEST(any_thread_can_wait_for_a_stream_of_any_device) {
  orStream_t stream = new_stream();
  std::atomic<bool> done{false};
  OK(openreg::addTaskToStream(stream, [&done] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  }));
  OK(orSetDevice(1));
  OK(orStreamSynchronize(stream));
  CHECK(done);
  OK(orStreamDestroy(stream));
}

TEST(many_threads_queue_on_one_stream) {
  orStream_t stream = new_stream();
  int count = 0;
  std::vector<std::thread> threads;
  for (int each = 0; each < 8; ++each) {
    threads.emplace_back([stream, &count] {
      for (int task = 0; task < 1000; ++task) {
        OK(openreg::addTaskToStream(stream, [&count] { ++count; }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  OK(orStreamSynchronize(stream));
  CHECK(count == 8000);
  OK(orStreamDestroy(stream));
}

TEST(an_exception_that_leaves_a_task_ends_the_process) {
  int ended = signal_of([] {
    std::fclose(stderr);
    orStream_t stream = new_stream();
    openreg::addTaskToStream(stream, [] { throw 1; });
    orStreamSynchronize(stream);
  });
  CHECK(ended == SIGABRT);
}
