# CUDA. The kernels are compiled twice: by nvcc for the plug-in libmezzo_cuda.so, which MEZZO_CUDA
# adds to a build that is otherwise the same, and by the C++ compiler for tests that run them on a
# CPU (tests/support/cuda_emulator).

file(GLOB_RECURSE MEZZO_CUDA_KERNELS CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/mezzo/kernels/cuda/*.cu)

# mezzo_enable_cuda(): finds nvcc. A macro, because CMake enables languages for folders.
macro(mezzo_enable_cuda)
  if(NOT TARGET Libtorch::cuda)
    message(FATAL_ERROR "MEZZO_CUDA needs a libtorch with CUDA; ${MEZZO_LIBTORCH} has none")
  endif()
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "MEZZO_CUDA needs nvcc, in PATH or in /usr/local/cuda/bin")
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE known_gpus
    COMMAND_ERROR_IS_FATAL ANY)
  set(CMAKE_CUDA_ARCHITECTURES "")
  foreach(architecture IN LISTS MEZZO_CUDA_ARCHITECTURES)
    if(NOT architecture MATCHES "^([0-9]+)-(real|virtual)$")  # runs_on() reads this form alone
      message(FATAL_ERROR
        "MEZZO_CUDA_ARCHITECTURES: expected N-real or N-virtual, got ${architecture}")
    endif()
    if(known_gpus MATCHES "sm_${CMAKE_MATCH_1}\n")
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture})
    else()
      message(STATUS "Left out, because ${CMAKE_CUDA_COMPILER} does not know it: ${architecture}")
    endif()
  endforeach()
  if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  enable_language(CUDA)
  # CMake 3.25 does not know these properties of a newer nvcc.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
endmacro()

# mezzo_emulated_cuda_kernels(target): the kernels as C++ for the CPU, and their emulator.
function(mezzo_emulated_cuda_kernels target)
  set(emulator ${PROJECT_SOURCE_DIR}/tests/support/cuda_emulator)
  add_library(${target} OBJECT ${MEZZO_CUDA_KERNELS}
    ${PROJECT_SOURCE_DIR}/mezzo/kernels/cuda/table.cpp
    ${emulator}/emulator.cpp ${emulator}/fiber.cpp)
  set_source_files_properties(${MEZZO_CUDA_KERNELS} PROPERTIES LANGUAGE CXX)
  target_include_directories(${target} BEFORE PUBLIC ${emulator})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE fmt::fmt-header-only)
  mezzo_warnings(${target})
  target_compile_options(${target} PRIVATE -Wno-unknown-pragmas)  # they unroll loops
endfunction()
