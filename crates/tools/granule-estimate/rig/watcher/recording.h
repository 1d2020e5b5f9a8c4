// The files of a recording: a trace for each device, in memory that the file system keeps. However the process
// ends, nothing that was written is lost; what lies behind the last line is zeros.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <map>
#include <unordered_map>
#include <utility>

namespace watcher {

using Pool = std::pair<unsigned long long, unsigned long long>;

class File {
 public:
  File(const std::string& path, const std::string& header) : path_(path) {
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) give_up("open");
    next_window();
    append(header.data(), header.size());
  }

  uint64_t next_id = 0;

  // A line that is a request, behind one that says its pool where that is another than before.
  uint64_t request(size_t bytes, uintptr_t stream, Pool pool) {
    if (pool != pool_) line("p %d\n", number(pool_ = pool));
    line("a %llu %zu %d\n", (unsigned long long)next_id, bytes, this->stream(stream));
    return next_id++;
  }
  // Pools are numbered as they first appear; the common one is 0.
  void of_pool(char what, Pool pool) {
    if (!pools_.count(pool)) return;
    line("%c %d\n", what, number(pool));
    if (what == 'q' && pool == pool_) pool_ = {0, 0};
  }

  // Streams are numbered as they first appear; the default stream is 0.
  int stream(uintptr_t handle) { return streams_.emplace(handle, (int)streams_.size()).first->second; }

  void line(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    va_list arguments;
    va_start(arguments, format);
    vline(format, arguments);
    va_end(arguments);
  }
  void vline(const char* format, va_list arguments) {
    char text[96];
    int length = vsnprintf(text, sizeof text, format, arguments);
    append(text, (size_t)length);
  }

  // The file gets its true length.
  void end() {
    munmap(window_, WINDOW);
    if (ftruncate(descriptor_, (off_t)(window_at_ + used_))) give_up("ftruncate");
    close(descriptor_);
  }
  // The file is another process's.
  void forget() {
    munmap(window_, WINDOW);
    close(descriptor_);
  }

 private:
  static constexpr size_t WINDOW = size_t(4) << 20;

  void append(const char* text, size_t length) {
    while (length) {
      if (used_ == WINDOW) {
        munmap(window_, WINDOW);
        window_at_ += WINDOW;
        next_window();
      }
      const size_t part = length < WINDOW - used_ ? length : WINDOW - used_;
      memcpy(window_ + used_, text, part);
      used_ += part, text += part, length -= part;
    }
  }
  void next_window() {
    used_ = 0;
    // Room is made before it is written to: a full disk is an error here, and would be a signal there.
    if (posix_fallocate(descriptor_, (off_t)window_at_, WINDOW)) give_up("fallocate");
    void* at = mmap(nullptr, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, (off_t)window_at_);
    if (at == MAP_FAILED) give_up("mmap");
    window_ = static_cast<char*>(at);
  }
  [[noreturn]] void give_up(const char* what) {
    fprintf(stderr, "granule: %s: the recording cannot be written (%s: %m)\n", path_.c_str(), what);
    abort();
  }

  std::string path_;
  int descriptor_ = -1;
  char* window_ = nullptr;
  size_t window_at_ = 0, used_ = 0;
  std::unordered_map<uintptr_t, int> streams_{{0, 0}};
  int number(Pool pool) { return pools_.emplace(pool, (int)pools_.size()).first->second; }
  std::map<Pool, int> pools_{{{0, 0}, 0}};
  Pool pool_{0, 0};
};

class Recording {
 public:
  // `about` is a JSON object for the headers.
  void begin(const char* folder, const char* about) {
    folder_ = folder;
    header_ = std::string("# ") + about + "\n";
    on_ = true;
  }
  // Made at the first request; null when nothing is recorded.
  File* of(int device) {
    if (!on_) return nullptr;
    auto found = files_.find(device);
    if (found != files_.end()) return &found->second;
    const std::string path = folder_ + "/" + std::to_string(getpid()) + "." + std::to_string(device) + ".trace";
    File* made = &files_.try_emplace(device, path, header_).first->second;
    // An iteration that began before the first request is the request's.
    if (marked_) made->line("i %llu\n", (unsigned long long)mark_);
    return made;
  }
  void mark(uint64_t number) {
    marked_ = true, mark_ = number;
    everywhere("i %llu\n", (unsigned long long)number);
  }
  void everywhere(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    if (!on_) return;
    for (auto& [device, file] : files_) {
      va_list arguments;
      va_start(arguments, format);
      file.vline(format, arguments);
      va_end(arguments);
    }
  }
  void of_pool(char what, Pool pool) {
    if (!on_) return;
    for (auto& [device, file] : files_) file.of_pool(what, pool);
  }
  void end() {
    if (!on_) return;
    on_ = false;
    for (auto& [device, file] : files_) file.end();
    files_.clear();
  }
  // In a fork: the files are its parent's.
  void forget() {
    for (auto& [device, file] : files_) file.forget();
    files_.clear();
  }

 private:
  bool on_ = false, marked_ = false;
  uint64_t mark_ = 0;
  std::string folder_, header_;
  std::unordered_map<int, File> files_;
};

}  // namespace watcher
