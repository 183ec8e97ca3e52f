#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "mezzo/dist/group/process_group.h"

/// What is checked before a collective sends anything. All throw InvalidArgument.
namespace mezzo::dist::detail {

/// The tensor is one that the group can move: defined, dense, on its kind of device.
void check_tensor(const char* operation, const at::Tensor& tensor,
                  const ProcessGroup::State& group);

/// No two elements share memory.
void check_writable(const char* operation, const at::Tensor& tensor);

/// `result` may take the outcome of a collective on the checked `tensor`: `sizes`, the tensor's
/// dtype and device, memory of its own.
void check_result(const char* operation, const at::Tensor& result, const at::Tensor& tensor,
                  c10::IntArrayRef sizes);

/// Dtype and shape, as "Float [3, 4]".
std::string text_of(const at::Tensor& tensor);

/// Runs `checks`, of this rank's own arguments. If they throw and the group checks its
/// collectives, the others hear of it first: their check_same_call() throws as well instead
/// of waiting for this rank; one all_gather of 256 bytes, which blocks.
void check_arguments(ProcessGroup::State& group, const char* operation,
                     const std::function<void()>& checks);

/// Where the group checks its collectives: all ranks are here, and `call` (what this one is about
/// to do) is the same on all. Otherwise every rank throws; the group can be used on. One all_gather
/// of 256 bytes, which blocks. Throws IoError as collectives do.
void check_same_call(ProcessGroup::State& group, const char* operation, const std::string& call);

}  // namespace mezzo::dist::detail
