#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::data {

/// The tensors of a .safetensors file by name: bool, uint8, int8 to int64, float16, bfloat16,
/// float32 or float64, contiguous, on the CPU. A tensor that save_model() left out, because another
/// shares its memory, is that one. Throws IoError for other dtypes, and, before it allocates a
/// tensor, if the header is not valid or its tensors do not fill the rest of the file without
/// overlaps and holes. Allocates twice the file.
MEZZO_API std::map<std::string, at::Tensor> read_safetensors(const std::filesystem::path& path);

}  // namespace mezzo::data
