#include "mezzo/graph/missing_column.h"

#include <optional>
#include <utility>

#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include "mezzo/core/error.h"

namespace mezzo {
namespace {

// libtorch registers nothing on this key and dispatches it before all others except modes.
constexpr c10::DispatchKey kMissingColumnKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

class MissingColumn final : public c10::TensorImpl {
 public:
  explicit MissingColumn(std::string message)
      : TensorImpl(c10::DispatchKeySet(kMissingColumnKey), caffe2::TypeMeta(), std::nullopt),
        message_(std::move(message)) {
    set_storage_access_should_throw();
    set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
    set_custom_device(true);
    set_custom_layout(true);
  }

  c10::IntArrayRef sizes_custom() const override { refuse(); }
  c10::SymIntArrayRef sym_sizes_custom() const override { refuse(); }
  c10::IntArrayRef strides_custom() const override { refuse(); }
  c10::SymIntArrayRef sym_strides_custom() const override { refuse(); }
  c10::SymBool sym_is_contiguous_custom(at::MemoryFormat) const override { refuse(); }
  std::int64_t dim_custom() const override { refuse(); }
  std::int64_t numel_custom() const override { refuse(); }
  c10::SymInt sym_numel_custom() const override { refuse(); }
  c10::Device device_custom() const override { refuse(); }
  c10::Layout layout_custom() const override { refuse(); }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion&,
                                                         bool) const override {
    refuse();
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&&,
                                                         bool) const override {
    refuse();
  }

 private:
  [[noreturn]] void refuse() const { detail::raise<InvalidArgument>("{}", message_); }

  std::string message_;
};

/// Replaces every operator that takes a missing column.
void refuse_operator(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  for (const c10::IValue& argument : torch::jit::last(*stack, handle.schema().arguments().size())) {
    argument.visit([](const c10::IValue& value) {
      if (value.isTensor() && detail::is_missing_column(value.toTensor())) {
        static_cast<void>(value.toTensor().sizes());  // throws
      }
      return false;
    });
  }
  detail::raise<LogicError>("{}: expected a missing column among the arguments",
                            handle.schema().name());
}

}  // namespace

at::Tensor detail::missing_column(std::string message) {
  return at::Tensor(c10::make_intrusive<MissingColumn>(std::move(message)));
}

bool detail::is_missing_column(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(kMissingColumnKey);
}

}  // namespace mezzo

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&mezzo::refuse_operator>());
}
