#pragma once

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {

/// Returns the options with reduce_found_inf replaced by a reduction over the group: if one rank
/// finds inf or nan, all ranks skip the step, and their scales stay equal. Each check is one
/// collective of a byte. The reduction keeps the group alive. No change with one process.
MEZZO_API amp::GradScalerOptions synchronized(amp::GradScalerOptions options,
                                              const ProcessGroup& group);

/// Broadcasts rank 0's scale and counts (ScalerState), e.g. at the start or after rank 0 has read a
/// checkpoint. For a scaler with synchronized() options. Communicates, blocks and synchronizes with
/// the device. Does nothing if all scalers are disabled. Throws InvalidArgument on every rank if
/// only some are enabled or the numbers of a rule's own values differ; IoError as the group's
/// collectives do.
MEZZO_API void synchronize(amp::GradScaler& scaler, const ProcessGroup& group);

}  // namespace mezzo::dist
