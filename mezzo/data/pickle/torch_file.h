#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::data {

/// The numbers in a file of torch.save, by name: those of a tensor or numpy array under "", those
/// of a dict under its keys, those of a dict in a dict under "key/key". Other values, such as lists
/// of text, are left out. Reads the zip form and the form of PyTorch before 1.6, without running
/// code (see pickle.h). Tensors are bool, uint8, of 8 to 64-bit integers, float16, bfloat16,
/// float32 or float64; the results are contiguous, on the CPU. Throws IoError for other files, more
/// than 64 items, and tensors that exceed their storage. Allocates twice the file.
MEZZO_API std::map<std::string, at::Tensor> read_torch_file(const std::filesystem::path& path);

/// The tensors of a module's state dict, an OrderedDict or a dict, by name. Reads as
/// read_torch_file, with any number of tensors and dimensions. Tensors of one storage share it in
/// the result too, and keep their strides. Throws IoError also for a dict that holds anything but
/// tensors.
MEZZO_API std::map<std::string, at::Tensor> read_state_dict(const std::filesystem::path& path);

}  // namespace mezzo::data
