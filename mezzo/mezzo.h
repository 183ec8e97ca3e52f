#pragma once

// Everything, for programs: the library's own sources include what they use.
#include <torch/torch.h>

#include "mezzo/amp/autocast.h"
#include "mezzo/amp/grad_scaler.h"
#include "mezzo/amp/loss_scale_policy.h"
#include "mezzo/amp/precision.h"
#include "mezzo/core/error.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/transforms.h"
#include "mezzo/message_passing/fn.h"
#include "mezzo/message_passing/memory.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/message_passing/update_all.h"
#include "mezzo/nn/gat_conv.h"
#include "mezzo/nn/graph_conv.h"
#include "mezzo/nn/mlp.h"
#include "mezzo/nn/model.h"
#include "mezzo/nn/sage_conv.h"
#include "mezzo/train/metrics.h"
#include "mezzo/train/report.h"
#include "mezzo/train/trainer.h"
