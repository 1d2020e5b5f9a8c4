#include "check.h"

TEST(there_are_two_devices) {
  int count = -1;
  OK(orGetDeviceCount(&count));
  CHECK(count == 2);
}

TEST(null_is_refused) {
  REFUSED(orGetDeviceCount(nullptr));
  REFUSED(orGetDevice(nullptr));
  int other = -1;
  REFUSED(orDeviceGetStreamPriorityRange(nullptr, &other));
  REFUSED(orDeviceGetStreamPriorityRange(&other, nullptr));
  CHECK(other == -1);
}

TEST(a_chosen_device_is_current) {
  int device = -1;
  OK(orGetDevice(&device));
  CHECK(device == 0);
  OK(orSetDevice(1));
  OK(orGetDevice(&device));
  CHECK(device == 1);
  OK(orSetDevice(0));
  OK(orGetDevice(&device));
  CHECK(device == 0);
}

TEST(there_is_no_other_device) {
  REFUSED(orSetDevice(-1));
  REFUSED(orSetDevice(2));
  int device = -1;
  OK(orGetDevice(&device));
  CHECK(device == 0);
}

TEST(threads_have_devices_of_their_own) {
  OK(orSetDevice(1));
  std::thread([] {
    int device = -1;
    OK(orGetDevice(&device));
    CHECK(device == 0);
    OK(orSetDevice(0));
  }).join();
  int device = -1;
  OK(orGetDevice(&device));
  CHECK(device == 1);
}

TEST(priorities_are_0_and_1) {
  int least = -1, greatest = -1;
  OK(orDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0);
  CHECK(greatest == 1);
}
