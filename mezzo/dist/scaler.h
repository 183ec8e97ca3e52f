#pragma once

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {

/// The options with a reduce_found_inf over the group in place of theirs: if a rank meets inf or
/// nan, all ranks skip, and their scales stay equal. Each check is one collective of a byte. The
/// reduction keeps the group alive. One process: the options as they are.
MEZZO_API amp::GradScalerOptions synchronized(amp::GradScalerOptions options,
                                              const ProcessGroup& group);

/// Gives all ranks rank 0's scale and counts (ScalerState), as at the start or after a checkpoint
/// that only rank 0 has read. For a scaler made with synchronized() options. Communicates, blocks,
/// and synchronises with the device. Throws InvalidArgument, on every rank, if it is enabled on
/// some ranks only or a rank has another number of a rule's own values; IoError as the group's
/// collectives do. Nothing for disabled scalers.
MEZZO_API void synchronize(amp::GradScaler& scaler, const ProcessGroup& group);

}  // namespace mezzo::dist
