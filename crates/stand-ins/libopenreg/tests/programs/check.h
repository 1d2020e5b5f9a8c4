// A test program: cases that register themselves, and checks that say what was wrong where.
#pragma once

#include <include/openreg.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Registered {
  Registered(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

#define TEST(name)                                \
  static void name();                             \
  static Registered registered_##name(#name, name); \
  static void name()

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++failures();                                                   \
    }                                                                 \
  } while (false)

#define OK(call) CHECK((call) == orSuccess)
#define REFUSED(call) CHECK((call) == orErrorUnknown)

// The signal that ends a child which does `body`; 0 if it gets to its end.
template <typename Body>
int signal_of(Body body) {
  std::fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

// A task that holds its stream back until `open` is called.
class Gate {
 public:
  void hold(orStream_t stream) {
    std::shared_future<void> opened = opened_;
    OK(openreg::addTaskToStream(stream, [this, opened] {
      reached_ = true;
      opened.wait();
    }));
  }
  // Once the stream is in the task.
  void wait_until_reached() const {
    while (!reached_) std::this_thread::yield();
  }
  void open() { opener_.set_value(); }

 private:
  std::atomic<bool> reached_{false};
  std::promise<void> opener_;
  std::shared_future<void> opened_ = opener_.get_future().share();
};

inline orStream_t new_stream() {
  orStream_t stream = nullptr;
  OK(orStreamCreate(&stream));
  return stream;
}

inline void* new_memory(size_t bytes) {
  void* at = nullptr;
  OK(orMalloc(&at, bytes));
  return at;
}

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  alarm(60);  // a hang is a failure
  for (const Case& one : cases()) {
    int before = failures();
    OK(orSetDevice(0));
    one.run();
    std::printf("%s %s\n", failures() == before ? "ok" : "FAILED", one.name);
  }
  return failures() == 0 && !cases().empty() ? 0 : 1;
}
