#include "mezzo/train/files.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "mezzo/core/error.h"

#include "support/npy_writer.h"

namespace mezzo {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ReplaceFile, replaces_and_leaves_nothing_beside) {
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

TEST(ReplaceFile, a_device_is_written_to_and_stays_a_device) {
  replace_file("/dev/null", [](std::ostream& file) { file << "text"; });
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(ReplaceFile, an_open_file_that_has_lost_its_name_is_written_to) {
  const test::TempFolder folder;
  const std::string path = folder.write("file", "old"), link = folder.path("link");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r"),
                                                             &std::fclose);
  ASSERT_NE(file, nullptr);
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(fileno(file.get())), link);
  if (!std::filesystem::exists(link)) GTEST_SKIP() << "no /proc";
  std::filesystem::remove(path);
  EXPECT_NO_THROW(check_writable("--json", link));
  replace_file(link, [](std::ostream& out) { out << "new"; });
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(contents(link), "new");
}

TEST(ReplaceFile, a_full_disk_is_an_io_error) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_TRUE(test::throws<IoError>(
      [] { replace_file("/dev/full", [](std::ostream& file) { file << "text"; }); },
      {"/dev/full"}));
}

TEST(CheckDistinct, sees_through_the_names_of_a_file) {
  const test::TempFolder folder;
  const std::string file = folder.write("file", ""), link = folder.path("link");
  std::filesystem::create_symlink(file, link);
  for (const std::string& other : {file, link, folder.path("./none/../file")}) {
    EXPECT_TRUE(test::throws<InvalidArgument>(
        [&] { check_distinct("--json", file, "--checkpoint", other); }, {"--json", "--checkpoint"}))
        << other;
  }
  EXPECT_TRUE(test::throws<InvalidArgument>(
      [&] { check_distinct("--json", folder.path("new"), "--checkpoint", folder.path("./new")); },
      {"--json"}));
  EXPECT_NO_THROW(check_distinct("--json", file, "--checkpoint", folder.path("new")));
  EXPECT_NO_THROW(check_distinct("--json", "", "--checkpoint", ""));
  EXPECT_NO_THROW(check_distinct("--json", "/dev/null", "--checkpoint", "/dev/null"));
}

TEST(CheckWritable, names_what_stands_in_the_way) {
  const test::TempFolder folder;
  const std::string file = folder.write("file", "");
  EXPECT_NO_THROW(check_writable("--json", folder.path("new.json")));
  EXPECT_NO_THROW(check_writable("--json", file));
  EXPECT_NO_THROW(check_writable("--json", "in_the_current_folder.json"));
  folder.write("taken.json.partial/file", "");
  const std::string long_name(250, 'x');  // which ".partial" makes too long
  for (const std::string& path : {folder.path(), folder.path("none/x.json"), file + "/x.json",
                                  folder.path("taken.json"), folder.path(long_name)}) {
    EXPECT_TRUE(test::throws<IoError>([&] { check_writable("--json", path); }, {"--json"})) << path;
  }
}

}  // namespace
}  // namespace mezzo
