#include "mezzo/amp/optim/fused_step.h"

namespace mezzo::amp {

FusedStep::~FusedStep() = default;  // here, so that the vtable lives in the library alone

}  // namespace mezzo::amp
