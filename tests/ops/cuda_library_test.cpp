#include "mezzo/runtime/cuda_library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <dlfcn.h>
#include <unistd.h>

#include "mezzo/ops/device.h"
#include "mezzo/runtime/backend_info.h"
#include "mezzo/runtime/cuda_services.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/version.h"

#include "support/tensors.h"

namespace mezzo::test {
namespace {

constexpr const char* kLibraryVariable = "MEZZO_CUDA_LIBRARY";

/// Expects the library to reject the file; the error has its name and `part`.
testing::AssertionResult refused(const std::string& path, const std::string& part) {
  const CudaLibrary library = open_cuda_library(path);
  if (library.kernels != nullptr) return testing::AssertionFailure() << "loaded " << path;
  if (library.path != path) return testing::AssertionFailure() << "another path: " << library.path;
  if (const auto named = mentions(library.problem, path); !named) return named;
  return mentions(library.problem, part);
}

TEST(CudaLibrary, a_missing_file_is_named) {
  EXPECT_TRUE(refused("/no/such/folder/libmezzo_cuda.so", "No such file"));
}

TEST(CudaLibrary, a_file_that_is_no_library_is_named) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("mezzo_no_library_" + std::to_string(::getpid()));
  std::ofstream(path) << std::string(4096, 'x');
  EXPECT_TRUE(refused(path, "cannot load"));
  std::filesystem::remove(path);
}

TEST(CudaLibrary, a_library_of_something_else_is_named) {
  EXPECT_TRUE(refused("libm.so.6", "mezzo_cuda_build_id"));
}

/// The fake library of CUDA kernels, in the folder of libmezzo.so.
class FakeCudaLibrary : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    path_ = (program.parent_path().parent_path() / "lib/libfake_cuda_library.so").string();
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " was not brought along";
    file_ = ::dlopen(path_.c_str(), RTLD_NOW);
    ASSERT_NE(file_, nullptr) << ::dlerror();
  }

  void set_build_id(const char* id) const {
    using SetBuildId = void (*)(const char* id);
    const auto set = reinterpret_cast<SetBuildId>(::dlsym(file_, "mezzo_set_fake_build_id"));
    ASSERT_NE(set, nullptr) << ::dlerror();
    set(id);
  }

  std::string build_id() const {
    using BuildId = const char* (*)();
    return reinterpret_cast<BuildId>(::dlsym(file_, "mezzo_cuda_build_id"))();
  }

  std::string path_;
  void* file_ = nullptr;
};

TEST_F(FakeCudaLibrary, of_the_same_build_is_taken) {
  const CudaLibrary library = open_cuda_library(path_);
  EXPECT_NE(library.kernels, nullptr);
  EXPECT_NE(library.services, nullptr);
  EXPECT_EQ(library.problem, "");
}

TEST_F(FakeCudaLibrary, of_another_build_is_refused) {
  const std::string own = build_id();
  EXPECT_TRUE(own.starts_with(kVersion)) << own;
  const std::string shorter = own.substr(0, own.size() - 1), longer = own + "0";
  for (const std::string& other : {shorter, longer, std::string("9.8.7"), std::string()}) {
    set_build_id(other.c_str());
    const CudaLibrary library = open_cuda_library(path_);
    EXPECT_EQ(library.kernels, nullptr);
    EXPECT_EQ(library.services, nullptr);
    for (const std::string& part : {path_, "build " + other, "build " + own}) {
      EXPECT_TRUE(mentions(library.problem, part));
    }
    EXPECT_EQ(library.problem.find('\n'), std::string::npos) << library.problem;
  }
  set_build_id(own.c_str());
  EXPECT_NE(open_cuda_library(path_).kernels, nullptr);
}

TEST(CudaLibrary, either_has_kernels_or_says_why_not) {
  const CudaLibrary& library = cuda_library();
  EXPECT_EQ(library.services, cuda_services());
  EXPECT_EQ(library.kernels == nullptr, library.services == nullptr);
  EXPECT_EQ(library.kernels, cuda_kernels());
  EXPECT_EQ(library.problem, cuda_library_problem());
  EXPECT_NE(library.kernels == nullptr, library.problem.empty());
  EXPECT_EQ(library.problem.find('\n'), std::string::npos);
  EXPECT_TRUE(
      mentions(describe_backends(), library.kernels != nullptr ? library.path : library.problem));
}

TEST(CudaLibrary, without_kernels_every_request_tells_the_problem) {
  if (cuda_kernels() != nullptr) GTEST_SKIP() << "the CUDA kernels are loaded";
  std::string problem = cuda_library_problem();
  EXPECT_TRUE(mentions(cuda_device_problem(0), problem));
  std::erase(problem, ' ');  // as error_of() does
  EXPECT_ERROR(problem, required_cuda_kernels());
  EXPECT_ERROR(problem, mezzo::detail::OnCuda::launch(kernels::DropoutArgs{}, at::kCPU, 0));
  EXPECT_TRUE(default_device().is_cpu());
}

TEST(CudaLibrary, the_visible_devices_are_cudas_list) {
  EXPECT_TRUE(sees_gpu(1, nullptr));
  EXPECT_FALSE(sees_gpu(0, nullptr));
  EXPECT_FALSE(sees_gpu(0, "0"));
  for (const char* list : {"0", "1", "1,0", "0,-1", "GPU-8932f937", "MIG-8932f937,0"}) {
    EXPECT_TRUE(sees_gpu(2, list)) << list;
  }
  for (const char* list : {"", "-1", "2", "2,0", "-1,0", "none", "NoDevFiles"}) {
    EXPECT_FALSE(sees_gpu(2, list)) << list;
  }
}

TEST(CudaArchitectures, machine_code_runs_on_its_major_version_and_ptx_on_all_newer_ones) {
  constexpr std::string_view kReal = "75-real,80-real,90-real,120-real";
  for (const int capability : {75, 80, 86, 89, 90, 120, 121}) {
    EXPECT_TRUE(runs_on(kReal, capability)) << capability;
  }
  for (const int capability : {52, 70, 72, 100, 103, 110}) {
    EXPECT_FALSE(runs_on(kReal, capability)) << capability;
  }
  EXPECT_FALSE(runs_on("86-real", 80));
  constexpr std::string_view kVirtual = "75-real,90-virtual";
  for (const int capability : {75, 90, 100, 121}) {
    EXPECT_TRUE(runs_on(kVirtual, capability)) << capability;
  }
  EXPECT_FALSE(runs_on(kVirtual, 80));
  EXPECT_FALSE(runs_on("", 90));
}

/// The output of a new process that loads mezzo with the variable set.
void print_problem_and_end() {
  std::cerr << (cuda_kernels() == nullptr ? cuda_library_problem() : "loaded") << std::flush;
  ::_exit(0);
}

TEST(CudaLibraryDeathTest, the_variable_names_the_file_also_where_there_is_no_driver) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // runs the program again
  const char* const before = std::getenv(kLibraryVariable);
  const std::string original = before == nullptr ? "" : before;
  ::setenv(kLibraryVariable, "/no/such/libkernels.so", 1);
  EXPECT_EXIT(print_problem_and_end(), testing::ExitedWithCode(0),
              "cannot load /no/such/libkernels.so");
  ::setenv(kLibraryVariable, "libm.so.6", 1);
  EXPECT_EXIT(print_problem_and_end(), testing::ExitedWithCode(0), "libm.so.6 holds no CUDA");
  if (before == nullptr) {
    ::unsetenv(kLibraryVariable);
  } else {
    ::setenv(kLibraryVariable, original.c_str(), 1);
  }
}

TEST(CudaLayout, without_tables_stays_as_it_is) {
  kernels::Layout layout;
  layout.inner = 7;
  layout.rhs_step = 0;
  const kernels::Layout there = mezzo::detail::OnCuda::layout(layout, test_device());
  EXPECT_EQ(there.lhs_offset, nullptr);
  EXPECT_EQ(there.inner, 7);
  EXPECT_EQ(there.rhs_step, 0);
}

TEST(CudaLayout, copies_tables_to_the_device_once) {
  const std::vector<std::int64_t> lhs = {0, 4, 8}, rhs = {0, 0, 4}, out = {0, 5, 10};
  const kernels::Layout layout{.num_groups = 3,
                               .inner = 5,
                               .lhs_offset = lhs.data(),
                               .rhs_offset = rhs.data(),
                               .out_offset = out.data()};
  const auto read = [](const std::int64_t* table) {
    const at::Tensor there = at::from_blob(const_cast<std::int64_t*>(table), {3},
                                           at::device(test_device()).dtype(at::kLong));
    const at::Tensor here = there.cpu();
    const auto* first = here.const_data_ptr<std::int64_t>();
    return std::vector<std::int64_t>(first, first + 3);
  };
  const kernels::Layout there = mezzo::detail::OnCuda::layout(layout, test_device());
  EXPECT_EQ(read(there.lhs_offset), lhs);
  EXPECT_EQ(read(there.rhs_offset), rhs);
  EXPECT_EQ(read(there.out_offset), out);
  EXPECT_EQ(there.num_groups, 3);
  EXPECT_EQ(there.inner, 5);

  const std::vector<std::int64_t> same = lhs, other = {0, 4, 9};
  kernels::Layout again = layout;
  again.lhs_offset = same.data();
  EXPECT_EQ(mezzo::detail::OnCuda::layout(again, test_device()).lhs_offset, there.lhs_offset);
  again.lhs_offset = other.data();
  const kernels::Layout different = mezzo::detail::OnCuda::layout(again, test_device());
  EXPECT_NE(different.lhs_offset, there.lhs_offset);
  EXPECT_EQ(read(different.lhs_offset), other);
}

TEST(CudaMemory, a_device_that_is_not_there_is_not_counted) {
  const at::Device missing(at::kCUDA, 100);
  EXPECT_ERROR("cuda:100", peak_memory_bytes(missing));
  EXPECT_ERROR("cuda:100", current_memory_bytes(missing));
  EXPECT_ERROR("cuda:100", reset_peak_memory(missing));
  EXPECT_ERROR("cuda:100", free_memory_bytes(missing));
  EXPECT_ERROR("cpu", free_memory_bytes(at::kCPU));
}

TEST(CudaMemory, counts_the_bytes_of_tensors) {
  const at::Device device = test_device();
  constexpr std::int64_t kBytes = std::int64_t{1} << 22;
  const std::int64_t before = current_memory_bytes(device);
  reset_peak_memory(device);
  {
    const at::Tensor held = at::empty({kBytes}, on_device(at::kByte));
    EXPECT_GE(current_memory_bytes(device), before + kBytes);
  }
  EXPECT_LT(current_memory_bytes(device), before + kBytes);
  EXPECT_GE(peak_memory_bytes(device), before + kBytes);
  reset_peak_memory(device);
  EXPECT_LT(peak_memory_bytes(device), before + kBytes);
}

TEST(CudaCapture, the_cpu_captures_nothing) {
  EXPECT_FALSE(mezzo::detail::is_capturing(at::kCPU));
}

TEST(CudaPasses, take_the_heads_whose_score_gradients_are_in_512_mib_or_one) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  EXPECT_EQ(mezzo::detail::OnCuda::heads_of_pass(8, 0), 8);
  EXPECT_EQ(mezzo::detail::OnCuda::heads_of_pass(8, kMiB), 8);
  EXPECT_EQ(mezzo::detail::OnCuda::heads_of_pass(8, 128 * kMiB), 4);
  EXPECT_EQ(mezzo::detail::OnCuda::heads_of_pass(8, 256 * kMiB + 1), 1);
  EXPECT_EQ(mezzo::detail::OnCuda::heads_of_pass(2, 4 * std::int64_t{114'615'892}),
            1);  // Reddit's edges
  EXPECT_EQ(mezzo::detail::OnCuda::heads_of_pass(2, 4096 * kMiB), 1);
}

}  // namespace
}  // namespace mezzo::test
