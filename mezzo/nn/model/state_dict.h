#pragma once

#include <map>
#include <string>

#include <torch/nn/module.h>

#include "mezzo/core/export.h"

namespace mezzo::nn {

/// Sets the parameters and buffers of the module, by name, from a file that Python wrote:
///
///     torch.save(model.state_dict(), "model.pt")
///     safetensors.torch.save_file(model.state_dict(), "model.safetensors")
///
/// A file is of the second kind if its name ends so. Tensors of any device are read through the CPU
/// and converted to the dtype and device of the module's.
///
/// The names are DGL's, or PyG's wherever a layer has a counterpart there: docs/library.md lists
/// those, and what they compute differently. Weights that PyG has transposed or split are
/// transposed or joined. Submodules have the names that they have in Python, or `paths` has them,
/// from names here to names in the file: {{"layer0", "conv1"}, {"head.out", "lin"}}. Of an
/// nn::Model these are the layers' names, unless the file has those of PyG's models or of the model
/// that it was made of. "" is the module itself, or all of the file.
///
/// Throws, and changes nothing: IoError with the path if the file is missing, truncated, corrupt or
/// holds anything else, as a checkpoint of train() does, which mezzo::load_checkpoint reads;
/// InvalidArgument with all the names, in the module and in the file, if some are missing or
/// unexpected, if a shape differs or the kind of dtype does not fit (floating to integers), if a
/// finite value would become infinite in the module's dtype, and for a path of no submodule. Runs
/// no code from the file, and checks its sizes before it allocates; holds all of it in memory.
MEZZO_API void load_state_dict(torch::nn::Module& module, const std::string& path,
                               const std::map<std::string, std::string>& paths = {});

}  // namespace mezzo::nn
