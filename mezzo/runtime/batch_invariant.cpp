#include "mezzo/runtime/batch_invariant.h"

namespace mezzo {
namespace {

thread_local int num_objects = 0;

}  // namespace

BatchInvariant::BatchInvariant() {
  ++num_objects;
}
BatchInvariant::~BatchInvariant() {
  --num_objects;
}
bool BatchInvariant::is_enabled() {
  return num_objects > 0;
}

}  // namespace mezzo
