#include "mezzo/nn/model/model_input.h"

#include <cstddef>

#include "mezzo/core/error.h"

namespace mezzo::nn {

const Topology& ModelInput::layer(std::int64_t index) const {
  if (blocks_ == nullptr) return *topology_;
  MEZZO_CHECK(index >= 0 && index < static_cast<std::int64_t>(blocks_->size()),
              "ModelInput: expected a block for layer {}, got {} blocks", index, blocks_->size());
  return (*blocks_)[static_cast<std::size_t>(index)].topology();
}

}  // namespace mezzo::nn
