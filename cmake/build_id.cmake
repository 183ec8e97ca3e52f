# MEZZO_BUILD_ID: a source that defines mezzo::kBuildId, for libmezzo.so and libmezzo_cuda.so. The id
# contains the version and a hash of the libtorch version and of the headers that both include.
file(GLOB headers CONFIGURE_DEPENDS mezzo/core/*.h mezzo/kernels/*.h mezzo/*/cuda_services.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
set(hashes ${Libtorch_VERSION})
foreach(header IN LISTS headers)
  file(SHA256 ${header} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
set(MEZZO_BUILD_ID ${PROJECT_BINARY_DIR}/build_id.cpp)
file(CONFIGURE OUTPUT ${MEZZO_BUILD_ID} CONTENT [[
#include "mezzo/runtime/cuda_services.h"

const char* const mezzo::kBuildId = "@PROJECT_VERSION@-@hash@";
]] @ONLY)
