#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "mezzo/dist/group/process_group.h"

/// Checks that run before a collective sends data. All throw InvalidArgument.
namespace mezzo::dist::detail {

/// Checks that the tensor is defined, dense and on the group's device type.
void check_tensor(const char* operation, const at::Tensor& tensor,
                  const ProcessGroup::State& group);

/// Checks that no two elements share memory.
void check_writable(const char* operation, const at::Tensor& tensor);

/// Checks that `result` can hold the result of a collective on `tensor` (already checked): shape
/// `sizes`, same dtype and device, no shared memory.
void check_result(const char* operation, const at::Tensor& result, const at::Tensor& tensor,
                  c10::IntArrayRef sizes);

/// Dtype and shape, e.g. "Float [3, 4]".
std::string text_of(const at::Tensor& tensor);

/// Runs `checks` of this rank's own arguments. If they throw and the group checks collectives,
/// first notifies the others, whose check_same_call() then throws too instead of waiting for this
/// rank; one blocking all_gather of 256 bytes.
void check_arguments(ProcessGroup::State& group, const char* operation,
                     const std::function<void()>& checks);

/// If the group checks collectives: waits for all ranks and checks that `call` (a description of
/// the operation) is equal on all. If not, every rank throws; the group stays usable. One blocking
/// all_gather of 256 bytes. Throws IoError as collectives do.
void check_same_call(ProcessGroup::State& group, const char* operation, const std::string& call);

}  // namespace mezzo::dist::detail
