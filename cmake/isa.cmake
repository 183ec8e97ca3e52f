# Instruction sets. Only a backend's own file is compiled for its instructions, and it runs only
# if the machine has them: the library runs on any x86-64.

set(MEZZO_ISA_avx2 -mavx2 -mfma -mf16c)
set(MEZZO_ISA_avx512 ${MEZZO_ISA_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
set(MEZZO_ISA_avx512_bf16 ${MEZZO_ISA_avx512} -mavx512bf16)

# The names in /proc/cpuinfo of the instructions of a backend, to select test variants.
set(MEZZO_CPUINFO_avx2 avx2 fma f16c)
set(MEZZO_CPUINFO_avx512 ${MEZZO_CPUINFO_avx2} avx512f avx512bw avx512vl avx512dq)
set(MEZZO_CPUINFO_avx512_bf16 ${MEZZO_CPUINFO_avx512} avx512_bf16)

set(MEZZO_ISAS avx2 avx512 avx512_bf16)

# mezzo_vector_backends(variable folder): the files of the vector backends in `folder`, with their
# flags; none on other processors.
function(mezzo_vector_backends variable folder)
  set(files)
  # Optimised in every build except a sanitizer's, where that takes minutes per file. There the
  # undefined-behaviour sanitizer checks only the scalar backend, which halves the compile time: the
  # loops are the same templates. The vector code is checked by the address sanitizer and by the
  # tests on guarded pages.
  set(level -O2)
  if(MEZZO_SANITIZE)
    set(level -O0 -fno-sanitize=undefined)
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    foreach(isa IN LISTS MEZZO_ISAS)
      list(APPEND files ${folder}/${isa}.cpp)
      # gcc 12 warns about its own <immintrin.h>, which deliberately initialises undefined vectors
      # with themselves.
      set_source_files_properties(${folder}/${isa}.cpp PROPERTIES COMPILE_OPTIONS
        "${MEZZO_ISA_${isa}};${level};-Wno-uninitialized;-Wno-maybe-uninitialized")
    endforeach()
  endif()
  set(${variable} ${files} PARENT_SCOPE)
endfunction()

# Sets `backends` to those that this machine supports and `missing` to the others.
function(mezzo_machine_backends backends missing)
  set(found scalar)
  set(absent)
  set(flags)
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
    string(REGEX REPLACE "[ \t:]+" ";" flags "${flags}")
  endif()
  foreach(isa IN LISTS MEZZO_ISAS)
    set(runs TRUE)
    foreach(flag IN LISTS MEZZO_CPUINFO_${isa})
      if(NOT flag IN_LIST flags)
        set(runs FALSE)
      endif()
    endforeach()
    if(runs)
      list(APPEND found ${isa})
    else()
      list(APPEND absent ${isa})
    endif()
  endforeach()
  set(${backends} ${found} PARENT_SCOPE)
  set(${missing} ${absent} PARENT_SCOPE)
endfunction()
