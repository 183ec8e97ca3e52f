# The options of the build, all of them, and the language settings that every target shares.

option(MEZZO_DEVELOPER "Tests, examples, and warnings as errors" ${PROJECT_IS_TOP_LEVEL})
option(MEZZO_CUDA "The plug-in for CUDA devices, libmezzo_cuda; needs nvcc" OFF)
set(MEZZO_CUDA_ARCHITECTURES 75-real 80-real 90-real 90-virtual 100-real 120-real CACHE STRING
  "GPUs of the plug-in, as N-real (machine code) or N-virtual (PTX: N and all newer ones)")
option(MEZZO_BENCH "Benchmarks; only in a Release build" OFF)
option(MEZZO_UNITY "Compile several files of a layer as one, which is several times faster" ON)
option(MEZZO_TIDY "Run clang-tidy beside the compiler" OFF)
set(MEZZO_SANITIZE "" CACHE STRING "Sanitizers, separated by ';': address;undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()
if(MEZZO_BENCH AND NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  message(FATAL_ERROR "MEZZO_BENCH needs CMAKE_BUILD_TYPE=Release, not ${CMAKE_BUILD_TYPE}: "
                      "a benchmark of another build measures nothing")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc's garbage collector scans the precompiled headers repeatedly, a tenth of the compile time.
  # Without it a file needs up to 1.5 GB.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-expand=1000>
    $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=2000000>)
endif()

find_program(MEZZO_CCACHE ccache)
mark_as_advanced(MEZZO_CCACHE)
if(MEZZO_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${MEZZO_CCACHE})
endif()

if(MEZZO_TIDY)
  find_program(MEZZO_CLANG_TIDY clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${MEZZO_CLANG_TIDY} --quiet)
endif()

if(MEZZO_SANITIZE)
  string(REPLACE ";" "," sanitizers "${MEZZO_SANITIZE}")
  add_compile_options(-fsanitize=${sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${sanitizers})
  if("undefined" IN_LIST MEZZO_SANITIZE)
    # This check needs type information that libtorch does not export for all classes.
    add_compile_options(-fno-sanitize=vptr)
  endif()
endif()
