#include "mezzo/train/files/file_output.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <ostream>
#include <streambuf>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mezzo/core/error.h"
#include "mezzo/train/files/files.h"

namespace mezzo {
namespace {

/// Writes to a file descriptor and keeps the errno of a failure.
class FileBuffer final : public std::streambuf {
 public:
  explicit FileBuffer(int file) : file_(file), bytes_(std::size_t{1} << 16) { clear(); }

  int failure() const { return failure_; }

 protected:
  int_type overflow(int_type next) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(next, traits_type::eof())) {
      sputc(traits_type::to_char_type(next));
    }
    return traits_type::not_eof(next);
  }

  int sync() override {
    const char* rest = pbase();
    while (rest < pptr()) {
      const auto count = ::write(file_, rest, static_cast<std::size_t>(pptr() - rest));
      if (count >= 0) {
        rest += count;
      } else if (errno == EAGAIN) {  // a pipe that another user made non-blocking
        struct ::pollfd ready = {.fd = file_, .events = POLLOUT, .revents = 0};
        ::poll(&ready, 1, -1);
      } else if (errno != EINTR) {
        failure_ = errno;
        return -1;
      }
    }
    clear();
    return 0;
  }

 private:
  void clear() { setp(bytes_.data(), bytes_.data() + bytes_.size()); }

  int file_, failure_ = 0;
  std::vector<char> bytes_;
};

/// The path of the latest LockedFile.
std::atomic<const char*> unfinished_file = nullptr;
static_assert(std::atomic<const char*>::is_always_lock_free, "a signal handler may not lock");

}  // namespace

void remove_unfinished_file() {
  if (const char* path = unfinished_file.load()) ::unlink(path);
}

void write_whole(const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) detail::raise<IoError>("{}: cannot be written: {}", path, std::strerror(errno));
  write(file);
  file.close();
  if (!file) detail::raise<IoError>("{}: writing failed: {}", path, std::strerror(errno));
}

void write_to(int file, const std::string& path, const std::function<void(std::ostream&)>& write) {
  FileBuffer buffer(file);
  std::ostream stream(&buffer);
  write(stream);
  if (!stream.flush()) {
    detail::raise<IoError>("{}: writing failed: {}", path, std::strerror(buffer.failure()));
  }
}

LockedFile::LockedFile(std::string path) : path_(std::move(path)) {
  do {
    close();
    // Do not follow a link, and do not wait for the reader of a pipe.
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file_ < 0) fail("cannot be written", errno);
    if (!is_regular()) {
      close();
      detail::raise<IoError>("{}: exists and is no regular file", path_);
    }
    // On a file system without locks there is no protection.
    while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  } while (!has_its_name());  // renamed or removed by the previous owner of the lock
  unfinished_file = path_.c_str();
}

void LockedFile::write_whole(const std::function<void(std::ostream&)>& write) const {
  if (::ftruncate(file_, 0) != 0) fail("writing failed", errno);
  write_to(file_, path_, write);
  if (::fsync(file_) != 0) fail("writing failed", errno);
}

void LockedFile::close() {
  unfinished_file = nullptr;
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

bool LockedFile::is_regular() const {
  struct ::stat status = {};
  return ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
}

bool LockedFile::has_its_name() const {
  struct ::stat mine = {}, named = {};
  return ::fstat(file_, &mine) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

void LockedFile::fail(const char* what, int reason) const {
  detail::raise<IoError>("{}: {}: {}", path_, what, std::strerror(reason));
}

}  // namespace mezzo
