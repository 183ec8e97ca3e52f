#include "mezzo/train/files/files.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include <sys/stat.h>

#include "support/npy_writer.h"

namespace mezzo {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ReplaceFile, replaces_and_leaves_no_other_file) {
  const test::TempFolder folder;
  const std::string path = folder.write("report.json", "old");
  replace_file(path, [](std::ostream& file) { file << "new"; });
  EXPECT_EQ(contents(path), "new");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(ReplaceFile, an_exception_keeps_the_old_file) {
  const test::TempFolder folder;
  const std::string path = folder.write("report.json", "old");
  EXPECT_THROW(replace_file(path,
                            [](std::ostream& file) {
                              file << "half";
                              throw std::runtime_error("stop");
                            }),
               std::runtime_error);
  EXPECT_EQ(contents(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(ReplaceFile, a_link_stays_and_its_file_is_replaced) {
  const test::TempFolder folder;
  const std::string file = folder.write("disk/report.json", "old"), link = folder.path("link");
  std::filesystem::create_symlink("disk/report.json", link);
  EXPECT_NO_THROW(check_writable("--json", link));
  replace_file(link, [](std::ostream& out) { out << "new"; });
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_FALSE(std::filesystem::is_symlink(file));
  EXPECT_EQ(contents(file), "new");
}

TEST(ReplaceFile, a_link_to_a_missing_file_creates_that_file) {
  const test::TempFolder folder;
  folder.write("disk/other", "");
  const std::string link = folder.path("link"), second = folder.path("second");
  std::filesystem::create_symlink("disk/report.json", link);
  std::filesystem::create_symlink(link, second);
  EXPECT_NO_THROW(check_writable("--json", second));
  replace_file(second, [](std::ostream& out) { out << "new"; });
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(std::filesystem::is_symlink(second));
  EXPECT_EQ(contents(folder.path("disk/report.json")), "new");

  std::filesystem::create_symlink("none/report.json", folder.path("lost"));
  std::filesystem::create_symlink("loop", folder.path("loop"));
  for (const char* name : {"lost", "loop"}) {
    EXPECT_THROWS(IoError, "--json", check_writable("--json", folder.path(name))) << name;
  }
}

TEST(ReplaceFile, only_a_regular_file_may_be_at_the_partial_path) {
  const test::TempFolder folder;
  const std::string victim = folder.write("victim", "precious"), path = folder.path("report.json");
  std::filesystem::create_symlink(victim, path + ".partial");
  EXPECT_THROW(replace_file(path, [](std::ostream& out) { out << "new"; }), IoError);
  EXPECT_EQ(contents(victim), "precious");
  const std::string pipe = folder.path("pipe.json");
  ASSERT_EQ(::mkfifo((pipe + ".partial").c_str(), 0600), 0);
  EXPECT_THROWS(IoError, test::fragments("--json", "partial"), check_writable("--json", pipe));
  EXPECT_THROW(replace_file(pipe, [](std::ostream& out) { out << "new"; }), IoError);
  // The partial file of a killed run is overwritten.
  const std::string left = folder.path("left.json");
  folder.write("left.json.partial", "half");
  EXPECT_NO_THROW(check_writable("--json", left));
  replace_file(left, [](std::ostream& out) { out << "new"; });
  EXPECT_EQ(contents(left), "new");
}

TEST(ReplaceFile, several_writers_of_one_file_each_write_all_of_it) {
  constexpr int kWriters = 4, kRounds = 50;
  constexpr std::size_t kBytes = 1 << 16;
  const test::TempFolder folder;
  const std::string path = folder.path("checkpoint");
  std::vector<std::thread> writers;
  std::atomic<int> failures = 0;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (int round = 0; round < kRounds; ++round) {
        try {
          replace_file(path, [&](std::ostream& out) {
            for (int part = 0; part < 4; ++part) {
              out << std::string(kBytes / 4, static_cast<char>('a' + writer)) << std::flush;
            }
          });
          const std::string content = contents(path);
          failures += content != std::string(kBytes, content.empty() ? ' ' : content.front());
        } catch (const IoError&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(ReplaceFile, a_device_is_written_to_and_stays_a_device) {
  replace_file("/dev/null", [](std::ostream& file) { file << "text"; });
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

/// An open file of this process, and a link to its descriptor like /dev/stdout.
class OpenFile {
 public:
  OpenFile(const std::string& path, const char* mode, std::string link)
      : file_(std::fopen(path.c_str(), mode), &std::fclose), link_(std::move(link)) {
    EXPECT_NE(file_, nullptr);
    if (!file_) return;
    std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(fileno(file_.get())), link_);
  }

  const std::string& link() const { return link_; }
  bool is_there() const { return std::filesystem::exists(link_); }

  void print(const char* text) {
    EXPECT_GE(std::fputs(text, file_.get()), 0);
    EXPECT_EQ(std::fflush(file_.get()), 0);
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::string link_;
};

// "w" is the shell's >, "a" is >>.
TEST(ReplaceFile, an_open_file_is_written_at_its_position) {
  const test::TempFolder folder;
  for (const char* mode : {"w", "a"}) {
    const std::string path = folder.write("log", "old "), before = *mode == 'a' ? "old " : "";
    OpenFile log(path, mode, folder.path(std::string("link_") + mode));
    if (!log.is_there()) GTEST_SKIP() << "no /proc";
    log.print("table ");
    EXPECT_NO_THROW(check_writable("--json", log.link()));
    replace_file(log.link(), [](std::ostream& out) { out << "report "; });
    log.print("end");
    EXPECT_EQ(contents(path), before + "table report end") << mode;
    EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  }
}

TEST(ReplaceFile, an_open_file_that_was_removed_is_written_to) {
  const test::TempFolder folder;
  const std::string path = folder.write("file", "old ");
  const OpenFile file(path, "a", folder.path("link"));
  if (!file.is_there()) GTEST_SKIP() << "no /proc";
  std::filesystem::remove(path);
  EXPECT_NO_THROW(check_writable("--json", file.link()));
  replace_file(file.link(), [](std::ostream& out) { out << "new"; });
  EXPECT_TRUE(std::filesystem::is_symlink(file.link()));
  EXPECT_EQ(contents(file.link()), "old new");
}

TEST(ReplaceFile, a_read_only_open_file_is_an_io_error) {
  const test::TempFolder folder;
  const std::string path = folder.write("file", "old");
  const OpenFile file(path, "r", folder.path("link"));
  if (!file.is_there()) GTEST_SKIP() << "no /proc";
  EXPECT_THROWS(IoError, "--json", check_writable("--json", file.link()));
  EXPECT_TRUE(test::throws<IoError>(
      [&] { replace_file(file.link(), [](std::ostream& out) { out << "new"; }); }, {"link"}));
  EXPECT_EQ(contents(path), "old");
}

TEST(ReplaceFile, a_full_disk_is_an_io_error) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_TRUE(test::throws<IoError>(
      [] { replace_file("/dev/full", [](std::ostream& file) { file << "text"; }); },
      {"/dev/full"}));
}

TEST(CheckDistinct, compares_files_not_names) {
  const test::TempFolder folder;
  const std::string file = folder.write("file", ""), link = folder.path("link");
  std::filesystem::create_symlink(file, link);
  for (const std::string& other : {file, link, folder.path("./none/../file")}) {
    EXPECT_THROWS(InvalidArgument, test::fragments("--json", "--checkpoint"),
                  check_distinct("--json", file, "--checkpoint", other))
        << other;
  }
  EXPECT_THROWS(InvalidArgument, "--json",
                check_distinct("--json", folder.path("new"), "--checkpoint", folder.path("./new")));
  EXPECT_NO_THROW(check_distinct("--json", file, "--checkpoint", folder.path("new")));
  EXPECT_NO_THROW(check_distinct("--json", "", "--checkpoint", ""));
  EXPECT_NO_THROW(check_distinct("--json", "/dev/null", "--checkpoint", "/dev/null"));
}

TEST(CheckNotRead, refuses_the_files_that_a_data_set_may_have) {
  const test::TempFolder folder;
  const std::string data = folder.path("data"), own = folder.write("data/labels.npy", ""),
                    below = folder.write("data/raw/edge.csv", ""),
                    elsewhere = folder.write("data_of_others/x.npy", ""),
                    other = folder.write("data_of_others/y.npy", "");
  const std::string link = folder.path("link.npy"), linked = folder.path("data/linked.npy");
  std::filesystem::create_symlink(own, link);
  std::filesystem::create_symlink(elsewhere, linked);
  const auto check = [&](const std::string& path, const std::string& dataset) {
    check_not_read("--output", path, dataset);
  };
  for (const std::string& dataset : {data, data + "/", data + "/../data", data + "/ind.cora"}) {
    for (const std::string& path :
         {own, below, link, linked, elsewhere, folder.path("data/raw/../labels.npy")}) {
      EXPECT_THROWS(InvalidArgument, "--output", check(path, dataset)) << path << " of " << dataset;
    }
    EXPECT_NO_THROW(check(folder.path("data/new.npy"), dataset));
    EXPECT_NO_THROW(check(other, dataset));
    EXPECT_NO_THROW(check("/dev/null", dataset));
  }
  EXPECT_THROWS(InvalidArgument, "--output", check(link, own));
  EXPECT_NO_THROW(check(below, own));
  EXPECT_NO_THROW(check("", data));
  EXPECT_NO_THROW(check(own, folder.path("data/no_such_set")));
}

TEST(CheckWritable, names_the_reason) {
  const test::TempFolder folder;
  const std::string file = folder.write("file", "");
  EXPECT_NO_THROW(check_writable("--json", folder.path("new.json")));
  EXPECT_NO_THROW(check_writable("--json", file));
  EXPECT_NO_THROW(check_writable("--json", "in_the_current_folder.json"));
  folder.write("taken.json.partial/file", "");
  const std::string long_name(250, 'x');  // too long with ".partial"
  for (const std::string& path : {folder.path(), folder.path("none/x.json"), file + "/x.json",
                                  folder.path("taken.json"), folder.path(long_name)}) {
    EXPECT_THROWS(IoError, "--json", check_writable("--json", path)) << path;
  }
}

}  // namespace
}  // namespace mezzo
