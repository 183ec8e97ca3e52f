#include "mezzo/runtime/cuda_library.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <dlfcn.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include "mezzo/ops/device.h"
#include "mezzo/ops/ops.h"
#include "mezzo/runtime/backend_info.h"
#include "mezzo/runtime/cuda_services.h"
#include "mezzo/runtime/memory.h"
#include "mezzo/version.h"

#include "support/tensors.h"
#include "support/tolerance.h"

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

using mezzo::detail::Direction;
using mezzo::detail::OnCuda;
using mezzo::detail::RowSide;

/// The sum of rows x: [num_src, width], which belong to the sources.
kernels::SpmmArgs sum_of(const at::Tensor& x, const Direction& direction, DType dtype) {
  kernels::SpmmArgs args;
  args.lhs = {
      .data = x.const_data_ptr(), .access = direction.access(Target::kSrc), .length = x.size(1)};
  args.layout.inner = x.size(1);
  args.dtype = dtype;
  return args;
}

TEST(CudaPadding, of_gathered_rows_is_zeros_up_to_16_bytes) {
  const Topology g = random_topology(5, 4, 40, 1);
  const Direction direction(g, RowSide::kDst);
  mezzo::detail::for_each(DTypes{}, [&]<class T>() {
    const at::Tensor x = integers({5, 2, 41}, scalar_type(T::kind), 2);
    const std::int64_t width = sizeof(typename T::Storage) == 2   ? 48
                               : sizeof(typename T::Storage) == 4 ? 44
                                                                  : 42;
    const at::Tensor expected = at::constant_pad_nd(x, {0, width - 41});

    const at::Tensor rows = x.flatten(0, 1);  // as 10 sources
    const Topology wide = random_topology(10, 4, 80, 1);
    kernels::SpmmArgs sum = sum_of(rows, Direction(wide, RowSide::kDst), T::kind);
    const at::Tensor summed = OnCuda::pad_gathered(sum, Direction(wide, RowSide::kDst));
    EXPECT_TRUE(exact(summed.view({5, 2, width}), expected)) << T::name;
    EXPECT_EQ(sum.lhs.data, summed.const_data_ptr());
    EXPECT_EQ(sum.lhs.length, width);
    EXPECT_EQ(sum.layout.inner, 41);

    kernels::WeightedGradArgs gradients;
    kernels::AttentionArgs attention;
    kernels::AttentionGradArgs attention_gradients;
    const auto check = [&](auto& args, const void*& data, const std::int64_t& padding) {
      args.dtype = T::kind;
      args.heads = 2;
      args.features = 41;
      data = x.const_data_ptr();
      const at::Tensor copy = OnCuda::pad_gathered(args, direction);
      EXPECT_TRUE(exact(copy, expected)) << T::name;
      EXPECT_EQ(data, copy.const_data_ptr());
      EXPECT_EQ(padding, width - 41);
    };
    check(gradients, gradients.other, gradients.other_padding);
    check(attention, attention.z, attention.z_padding);
    check(attention_gradients, attention_gradients.grad, attention_gradients.grad_padding);
  });
}

TEST(CudaPadding, is_left_out_where_it_does_not_pay_or_no_rows_are_gathered) {
  const Topology many = random_topology(5, 4, 40, 1), few = random_topology(5, 4, 39, 1);
  const auto is_padded = [](const Topology& g, std::int64_t width, auto change) {
    const at::Tensor x = integers({5, width}, at::kHalf, 2);
    const Direction direction(g, RowSide::kDst);
    kernels::SpmmArgs args = sum_of(x, direction, DType::kFloat16);
    change(args);
    const at::Tensor copy = OnCuda::pad_gathered(args, direction);
    EXPECT_EQ(copy.defined(), args.lhs.data != x.const_data_ptr());
    return copy.defined();
  };
  const auto same = [](kernels::SpmmArgs& /*args*/) {};
  EXPECT_TRUE(is_padded(many, 41, same));
  EXPECT_FALSE(is_padded(few, 41, same));
  EXPECT_FALSE(is_padded(many, 48, same));
  EXPECT_TRUE(is_padded(many, 5, same));
  EXPECT_FALSE(is_padded(many, 4, same));  // half of 16 bytes
  EXPECT_FALSE(is_padded(many, 41, [](auto& args) { args.lhs.access = kernels::Access::kSecond; }));
  EXPECT_FALSE(is_padded(many, 41, [](auto& args) { args.reduce = ReduceOp::kProd; }));
  EXPECT_FALSE(is_padded(many, 41, [](auto& args) { args.op = BinaryOp::kAdd; }));
  EXPECT_FALSE(is_padded(many, 41, [](auto& args) { args.op = BinaryOp::kMul; }));
  EXPECT_TRUE(is_padded(many, 41, [](auto& args) {
    args.op = BinaryOp::kMul;
    args.layout.rhs_step = 0;
  }));
}

/// On a GPU rows of these widths are padded; the results have no padding.
TEST(CudaPadding, does_not_change_results) {
  const Topology g = random_topology(20, 30, 400, 3);
  const at::Tensor src = g.src().to(at::kLong), dst = g.dst().to(at::kLong);
  for (const DTypeInfo& dtype : dtypes()) {
    for (const std::int64_t width : {602, 41, 47}) {
      SCOPED_TRACE(fmt::format("{} width {}", dtype.name, width));
      const at::Tensor x = integers({20, width}, dtype.scalar, 4, -2, 2).requires_grad_();
      const at::Tensor weight = integers({400, 1}, dtype.scalar, 5, -2, 2).requires_grad_();
      const at::Tensor grad = integers({30, width}, dtype.scalar, 6, -1, 1);
      const at::Tensor out = gspmm(g, BinaryOp::kMul, ReduceOp::kSum, x, weight);
      EXPECT_TRUE(out.is_contiguous());
      const at::Tensor sent = x.detach().to(at::kDouble).index_select(0, src);
      const at::Tensor received = grad.to(at::kDouble).index_select(0, dst);
      const at::Tensor factors = weight.detach().to(at::kDouble);
      const auto sums = [&](std::int64_t rows, const at::Tensor& into, const at::Tensor& messages) {
        return at::zeros({rows, width}, on_device(at::kDouble)).index_add_(0, into, messages);
      };
      EXPECT_TRUE(exact(out, sums(30, dst, sent * factors)));
      const auto gradients = torch::autograd::grad({out}, {x, weight}, {grad});
      EXPECT_TRUE(exact(gradients[0], sums(20, src, received * factors)));
      EXPECT_TRUE(exact(gradients[1], (sent * received).sum(1, true)));
      const at::Tensor score = at::ones({20, 1}, x.options());
      const at::Tensor attended =
          gat_attention(g, x.detach().unsqueeze(1), score, at::zeros({30, 1}, score.options()));
      const at::Tensor mean =
          gspmm(g, BinaryOp::kCopyLhs, ReduceOp::kMean, x.detach(), std::nullopt);
      EXPECT_TRUE(exact(attended.squeeze(1), mean));
    }
  }
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
