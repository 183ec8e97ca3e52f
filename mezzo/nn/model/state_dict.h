#pragma once

#include <string>

#include <torch/nn/module.h>

#include "mezzo/core/export.h"

namespace mezzo::nn {

/// Sets the parameters and buffers of the module, by name, from a file that Python wrote:
///
///     torch.save(dict(model.state_dict()), path)
///
/// A plain dict is needed because libtorch cannot read the OrderedDict of state_dict(). Tensors of
/// any device are read through the CPU and converted to the dtype and device of the module's. Also
/// reads a c10::Dict from std::string to tensors, written by torch::pickle_save.
///
/// The names are DGL's, or PyG's of GCNConv (for GraphConv), SAGEConv, GATConv, GATv2Conv and
/// GINConv anywhere in the module, and of its MLP and models such as GraphSAGE (for nn::MLP and
/// nn::Model). Weights that PyG has transposed are transposed. docs/library.md lists what the
/// layers compute differently.
///
/// Throws, and changes nothing: IoError with the path if the file is missing, truncated or corrupt
/// (checks the checksums of its records, unlike libtorch's reader) or holds anything else, as a
/// checkpoint of train() does, which mezzo::load_checkpoint reads; InvalidArgument with the names,
/// for a file of PyG's in both libraries, if some are missing or unexpected, if a shape differs or
/// the kind of dtype does not fit (floating to integers), and if a finite value would become
/// infinite in the module's dtype. Reads the file twice and holds its tensors in memory. Runs no
/// code from the file, but trusts the sizes in it: as with torch.load, read only files that you
/// trust.
MEZZO_API void load_state_dict(torch::nn::Module& module, const std::string& path);

}  // namespace mezzo::nn
