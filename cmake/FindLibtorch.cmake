# Finds the libtorch inside a `torch` Python wheel. The wheel's own TorchConfig.cmake insists on a
# CUDA toolkit even if only the CPU is used; this file does not.
#
# Input:    MEZZO_LIBTORCH, a CMake or environment variable: the folder `torch` of an installed
#           wheel (it has include/ and lib/). Without it: MEZZO_LIBTORCH_DEFAULT.
# Targets:  Libtorch::cpu   libtorch_cpu and libc10, headers, the wheel's OpenMP runtime
#           Libtorch::cuda  the same and libtorch_cuda, libc10_cuda (if the wheel has them)

set(_libtorch ${MEZZO_LIBTORCH_DEFAULT})
if(DEFINED ENV{MEZZO_LIBTORCH})
  set(_libtorch $ENV{MEZZO_LIBTORCH})
endif()
set(MEZZO_LIBTORCH ${_libtorch} CACHE PATH "The folder `torch` of an installed torch wheel")
if(DEFINED ENV{MEZZO_LIBTORCH} AND NOT MEZZO_LIBTORCH STREQUAL "$ENV{MEZZO_LIBTORCH}")
  message(FATAL_ERROR "MEZZO_LIBTORCH is '$ENV{MEZZO_LIBTORCH}' in the environment and "
                      "'${MEZZO_LIBTORCH}' in this build folder: "
                      "remove ${CMAKE_BINARY_DIR}/CMakeCache.txt")
endif()
set(_libtorch ${MEZZO_LIBTORCH})

set(_version_header ${_libtorch}/include/torch/headeronly/version.h)
if(EXISTS ${_version_header})
  file(STRINGS ${_version_header} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" _lines "${_lines}")
  string(REPLACE ";" "." Libtorch_VERSION "${_lines}")
endif()

find_library(Libtorch_CPU_LIBRARY torch_cpu PATHS ${_libtorch}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(Libtorch_C10_LIBRARY c10 PATHS ${_libtorch}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(Libtorch_CUDA_LIBRARY torch_cuda PATHS ${_libtorch}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(Libtorch_C10_CUDA_LIBRARY c10_cuda PATHS ${_libtorch}/lib NO_DEFAULT_PATH NO_CACHE)
file(GLOB Libtorch_GOMP_LIBRARY ${_libtorch}/lib/libgomp*.so*)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Libtorch
  REQUIRED_VARS Libtorch_CPU_LIBRARY Libtorch_C10_LIBRARY Libtorch_GOMP_LIBRARY
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE
    "MEZZO_LIBTORCH is '${_libtorch}'. Run tools/bootstrap, or set MEZZO_LIBTORCH to the folder \
`torch` of an installed wheel.")

if(Libtorch_FOUND AND NOT TARGET Libtorch::cpu)
  find_package(Threads REQUIRED)

  # The CUDA libraries are separate wheels, in folders beside `torch`.
  file(GLOB _nvidia_folders ${_libtorch}/../nvidia/*/lib)
  set(Libtorch_RUNTIME_FOLDERS ${_libtorch}/lib)
  set(_link_options)
  foreach(_folder IN LISTS _nvidia_folders)
    get_filename_component(_folder ${_folder} REALPATH)
    list(APPEND _link_options LINKER:-rpath-link,${_folder})
  endforeach()

  add_library(Libtorch::c10 SHARED IMPORTED)
  set_target_properties(Libtorch::c10 PROPERTIES IMPORTED_LOCATION ${Libtorch_C10_LIBRARY})

  # The loader loads one library per name, and the system's OpenMP runtime has the same name as the
  # wheel's. Linking by path, never with -fopenmp, ensures that it is the wheel's.
  add_library(Libtorch::gomp SHARED IMPORTED)
  set_target_properties(Libtorch::gomp PROPERTIES IMPORTED_LOCATION ${Libtorch_GOMP_LIBRARY})

  add_library(Libtorch::cpu SHARED IMPORTED)
  set_target_properties(Libtorch::cpu PROPERTIES
    IMPORTED_LOCATION ${Libtorch_CPU_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES
      "${_libtorch}/include;${_libtorch}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=1
    INTERFACE_LINK_OPTIONS "${_link_options}"
    INTERFACE_LINK_LIBRARIES "Libtorch::c10;Libtorch::gomp;Threads::Threads")

  if(Libtorch_CUDA_LIBRARY AND Libtorch_C10_CUDA_LIBRARY)
    add_library(Libtorch::c10_cuda SHARED IMPORTED)
    set_target_properties(Libtorch::c10_cuda PROPERTIES
      IMPORTED_LOCATION ${Libtorch_C10_CUDA_LIBRARY})
    # Only running needs the CUDA wheels, linking does not. The kernels of libtorch_cuda register
    # themselves, so it must be linked even if none of its symbols are used.
    add_library(Libtorch::cuda SHARED IMPORTED)
    set_target_properties(Libtorch::cuda PROPERTIES
      IMPORTED_LOCATION ${Libtorch_CUDA_LIBRARY}
      INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed;LINKER:--allow-shlib-undefined"
      INTERFACE_LINK_LIBRARIES "Libtorch::cpu;Libtorch::c10_cuda")
  endif()
endif()
unset(_libtorch)
unset(_version_header)
unset(_lines)
unset(_nvidia_folders)
unset(_link_options)
