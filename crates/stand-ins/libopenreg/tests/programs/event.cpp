#include "check.h"

static orEvent_t new_event(unsigned int flags = orEventDisableTiming) {
  orEvent_t event = nullptr;
  OK(orEventCreateWithFlags(&event, flags));
  return event;
}

TEST(events_come_and_go) {
  orEvent_t event = nullptr;
  OK(orEventCreate(&event));
  CHECK(event != nullptr);
  OK(orEventDestroy(event));
  REFUSED(orEventDestroy(event));
  REFUSED(orEventQuery(event));
  OK(orEventCreateWithFlags(&event, orEventEnableTiming));
  OK(orEventDestroy(event));
}

TEST(null_is_refused_everywhere) {
  float ms = -1;
  orEvent_t event = new_event(orEventEnableTiming);
  orStream_t stream = new_stream();
  REFUSED(orEventCreate(nullptr));
  REFUSED(orEventCreateWithFlags(nullptr, orEventEnableTiming));
  REFUSED(orEventDestroy(nullptr));
  REFUSED(orEventRecord(nullptr, stream));
  REFUSED(orEventRecord(event, nullptr));
  REFUSED(orEventSynchronize(nullptr));
  REFUSED(orEventQuery(nullptr));
  REFUSED(orStreamWaitEvent(nullptr, event, 0));
  REFUSED(orStreamWaitEvent(stream, nullptr, 0));
  OK(orEventRecord(event, stream));
  OK(orEventSynchronize(event));
  REFUSED(orEventElapsedTime(nullptr, event, event));
  REFUSED(orEventElapsedTime(&ms, nullptr, event));
  REFUSED(orEventElapsedTime(&ms, event, nullptr));
  CHECK(ms == -1);
  OK(orEventDestroy(event));
  OK(orStreamDestroy(stream));
}

TEST(an_event_begins_completed) {
  orEvent_t event = new_event();
  OK(orEventQuery(event));
  OK(orEventSynchronize(event));
  OK(orEventDestroy(event));
}

TEST(a_record_completes_when_the_stream_gets_there) {
  orStream_t stream = new_stream();
  orEvent_t event = new_event();
  Gate gate;
  gate.hold(stream);
  OK(orEventRecord(event, stream));
  CHECK(orEventQuery(event) == orErrorNotReady);
  gate.open();
  OK(orEventSynchronize(event));
  OK(orEventQuery(event));
  OK(orEventDestroy(event));
  OK(orStreamDestroy(stream));
}

TEST(an_event_is_complete_with_its_last_record) {
  orStream_t slow = new_stream(), fast = new_stream();
  orEvent_t event = new_event();
  Gate gate, second;
  gate.hold(slow);
  OK(orEventRecord(event, slow));
  second.hold(slow);
  OK(orEventRecord(event, slow));
  gate.open();
  second.wait_until_reached();
  CHECK(orEventQuery(event) == orErrorNotReady);
  OK(orEventRecord(event, fast));
  OK(orEventSynchronize(event));
  OK(orEventQuery(event));
  second.open();
  OK(orStreamSynchronize(slow));
  OK(orEventQuery(event));
  OK(orEventDestroy(event));
  OK(orStreamDestroy(slow));
  OK(orStreamDestroy(fast));
}

TEST(records_stay_on_the_events_device) {
  orEvent_t event = new_event();
  orStream_t stream = new_stream();
  OK(orSetDevice(1));
  orStream_t other = new_stream();
  REFUSED(orEventRecord(event, other));
  OK(orEventQuery(event));
  OK(orEventRecord(event, stream));
  OK(orEventSynchronize(event));
  OK(orEventDestroy(event));
  OK(orStreamDestroy(stream));
  OK(orStreamDestroy(other));
}

TEST(queued_records_and_waits_outlive_the_event) {
  orStream_t stream = new_stream(), other = new_stream();
  orEvent_t event = new_event();
  Gate gate;
  bool done = false, before = true;
  gate.hold(stream);
  OK(openreg::addTaskToStream(stream, [&done] { done = true; }));
  OK(orEventRecord(event, stream));
  OK(orStreamWaitEvent(other, event, 0));
  OK(openreg::addTaskToStream(other, [&done, &before] { before = !done; }));
  OK(orEventDestroy(event));
  gate.open();
  OK(orStreamSynchronize(other));
  CHECK(done && !before);
  OK(orStreamDestroy(stream));
  OK(orStreamDestroy(other));
}

TEST(time_passes_between_records) {
  orStream_t stream = new_stream();
  orEvent_t start = new_event(orEventEnableTiming), end = new_event(orEventEnableTiming);
  OK(orEventRecord(start, stream));
  OK(openreg::addTaskToStream(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }));
  OK(orEventRecord(end, stream));
  OK(orEventSynchronize(end));
  float ms = -1;
  OK(orEventElapsedTime(&ms, start, end));
  CHECK(ms >= 10 && ms < 10000);
  OK(orEventElapsedTime(&ms, end, start));
  CHECK(ms <= -10);
  OK(orEventElapsedTime(&ms, start, start));
  CHECK(ms == 0);
  OK(orEventDestroy(start));
  OK(orEventDestroy(end));
  OK(orStreamDestroy(stream));
}

TEST(only_complete_timed_events_of_one_device_have_time_between_them) {
  orStream_t stream = new_stream();
  orEvent_t timed = new_event(orEventEnableTiming), untimed = new_event();
  orEvent_t pending = new_event(orEventEnableTiming), never = new_event(orEventEnableTiming);
  orEvent_t again = new_event(orEventEnableTiming);
  OK(orSetDevice(1));
  orEvent_t elsewhere = new_event(orEventEnableTiming);
  orStream_t other = new_stream();
  OK(orEventRecord(elsewhere, other));
  OK(orEventSynchronize(elsewhere));
  OK(orEventRecord(timed, stream));
  OK(orEventRecord(untimed, stream));
  OK(orEventRecord(again, stream));
  OK(orStreamSynchronize(stream));
  Gate gate;
  gate.hold(stream);
  OK(orEventRecord(pending, stream));
  OK(orEventRecord(again, stream));

  float ms = -1;
  for (orEvent_t wrong : {untimed, pending, never, again, elsewhere}) {
    REFUSED(orEventElapsedTime(&ms, timed, wrong));
    REFUSED(orEventElapsedTime(&ms, wrong, timed));
  }
  CHECK(ms == -1);
  gate.open();
  OK(orEventSynchronize(pending));
  OK(orEventElapsedTime(&ms, timed, pending));
  for (orEvent_t event : {timed, untimed, pending, never, again, elsewhere}) OK(orEventDestroy(event));
  OK(orStreamDestroy(stream));
  OK(orStreamDestroy(other));
}

TEST(a_stream_waits_for_an_event_also_of_another_device) {
  orStream_t stream = new_stream();
  orEvent_t event = new_event();
  OK(orSetDevice(1));
  orStream_t waiting = new_stream();
  Gate gate;
  gate.hold(stream);
  OK(orEventRecord(event, stream));
  OK(orStreamWaitEvent(waiting, event, 99));
  CHECK(orStreamQuery(waiting) == orErrorNotReady);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(orStreamQuery(waiting) == orErrorNotReady);
  gate.open();
  OK(orStreamSynchronize(waiting));
  OK(orEventQuery(event));
  OK(orEventDestroy(event));
  OK(orStreamDestroy(stream));
  OK(orStreamDestroy(waiting));
}

TEST(a_wait_for_a_pending_event_is_for_the_records_made_so_far) {
  orStream_t first = new_stream(), second = new_stream(), waiting = new_stream();
  orEvent_t event = new_event();
  Gate gate, never;
  gate.hold(first);
  OK(orEventRecord(event, first));
  OK(orStreamWaitEvent(waiting, event, 0));
  never.hold(second);
  OK(orEventRecord(event, second));
  gate.open();
  OK(orStreamSynchronize(waiting));
  CHECK(orEventQuery(event) == orErrorNotReady);
  never.open();
  OK(orEventSynchronize(event));
  OK(orEventDestroy(event));
  for (orStream_t stream : {first, second, waiting}) OK(orStreamDestroy(stream));
}

TEST(a_wait_looks_at_the_event_when_the_stream_gets_there) {
  orStream_t stream = new_stream(), waiting = new_stream();
  orEvent_t event = new_event();
  Gate before, gate;
  before.hold(waiting);
  OK(orStreamWaitEvent(waiting, event, 0));
  gate.hold(stream);
  OK(orEventRecord(event, stream));
  before.open();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(orStreamQuery(waiting) == orErrorNotReady);
  gate.open();
  OK(orStreamSynchronize(waiting));
  OK(orEventDestroy(event));
  OK(orStreamDestroy(stream));
  OK(orStreamDestroy(waiting));
}

TEST(a_stream_never_waits_for_a_record_of_its_own) {
  orStream_t first = new_stream(), second = new_stream();
  orEvent_t event = new_event();
  Gate gate;
  gate.hold(first);
  OK(orStreamWaitEvent(first, event, 0));
  OK(orEventRecord(event, first));
  OK(orStreamWaitEvent(second, event, 0));
  OK(orEventRecord(event, second));
  OK(orStreamWaitEvent(first, event, 0));
  gate.open();
  OK(orStreamSynchronize(first));
  OK(orStreamSynchronize(second));
  OK(orEventQuery(event));
  OK(orEventDestroy(event));
  OK(orStreamDestroy(first));
  OK(orStreamDestroy(second));
}

TEST(streams_wait_for_each_other_in_turn) {
  orStream_t first = new_stream(), second = new_stream();
  orEvent_t ping = new_event(), pong = new_event();
  Gate gate;
  gate.hold(first);
  int turns = 0;
  bool in_order = true;
  for (int turn = 0; turn < 100; ++turn) {
    OK(orStreamWaitEvent(first, pong, 0));
    OK(openreg::addTaskToStream(first, [&, turn] { in_order = in_order && turns++ == 2 * turn; }));
    OK(orEventRecord(ping, first));
    OK(orStreamWaitEvent(second, ping, 0));
    OK(openreg::addTaskToStream(second, [&, turn] { in_order = in_order && turns++ == 2 * turn + 1; }));
    OK(orEventRecord(pong, second));
  }
  gate.open();
  OK(orDeviceSynchronize());
  CHECK(turns == 200 && in_order);
  OK(orEventDestroy(ping));
  OK(orEventDestroy(pong));
  OK(orStreamDestroy(first));
  OK(orStreamDestroy(second));
}

TEST(several_streams_wait_for_one_event_and_it_is_used_again) {
  orStream_t first = new_stream();
  std::vector<orStream_t> others{new_stream(), new_stream(), new_stream()};
  orEvent_t event = new_event();
  for (int round = 0; round < 50; ++round) {
    int value = -1;
    std::atomic<int> seen{0};
    OK(openreg::addTaskToStream(first, [&value, round] { value = round; }));
    OK(orEventRecord(event, first));
    for (orStream_t other : others) {
      OK(orStreamWaitEvent(other, event, 0));
      OK(openreg::addTaskToStream(other, [&, round] { seen += value == round; }));
    }
    OK(orDeviceSynchronize());
    CHECK(seen == 3);
  }
  OK(orEventDestroy(event));
  OK(orStreamDestroy(first));
  for (orStream_t other : others) OK(orStreamDestroy(other));
}
