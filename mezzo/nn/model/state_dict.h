#pragma once

#include <string>

#include <torch/nn/module.h>

#include "mezzo/core/export.h"

namespace mezzo::nn {

/// Sets the parameters and buffers of the module, by their names, to the tensors of a file that
/// Python wrote:
///
///     torch.save(dict(model.state_dict()), path)
///
/// as a plain dict, for libtorch does not read the OrderedDict that state_dict() returns. Tensors
/// of any device are read by way of the CPU, and each gets the dtype and device of the module's.
/// A file of torch::pickle_save with a c10::Dict from std::string to tensors will do as well.
///
/// Throws, and changes nothing: IoError that names the file where it is missing, truncated or
/// corrupt (by the checksums of its parts, which libtorch's own reader passes over) or holds
/// anything else; InvalidArgument where a name is missing or too many (it lists them), where a
/// shape differs, and where numbers would not fit the kind of dtype (floating to integers). Reads
/// the file twice, and holds its tensors. Runs nothing that a file has in it, but sizes in it are
/// taken for true: as with torch.load, read files that you trust.
MEZZO_API void load_state_dict(torch::nn::Module& module, const std::string& path);

}  // namespace mezzo::nn
