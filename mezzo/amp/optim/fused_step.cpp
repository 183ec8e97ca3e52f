#include "mezzo/amp/optim/fused_step.h"

namespace mezzo::amp {

FusedStep::~FusedStep() = default;  // anchors the vtable in the library

}  // namespace mezzo::amp
