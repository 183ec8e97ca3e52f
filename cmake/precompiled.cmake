# libtorch's headers take 5 to 12 seconds a file. Precompiled once a target, they take one; a file
# still includes all it uses (every public header is compiled alone in CI).

# mezzo_precompile(target header...): headers that most files of the target include.
function(mezzo_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(MEZZO_CCACHE)
    # What ccache asks for, to cache files that use a precompiled header with gcc.
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# mezzo_share_precompiled(target from): takes the headers of a target built with the same options.
function(mezzo_share_precompiled target from)
  target_precompile_headers(${target} REUSE_FROM ${from})
  if(MEZZO_CCACHE)
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# mezzo_compile_together(target name source...): the sources, in their order, as one file for every
# MEZZO_UNITY_FILES of them. Most of the time of one is libtorch's headers and their templates. Names
# in anonymous namespaces must differ within a group; the preset dev compiles each file alone.
set(MEZZO_UNITY_FILES 8)
function(mezzo_compile_together target name)
  if(NOT MEZZO_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # gcc takes the files of a group for headers, whose anonymous namespaces it would warn of.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  set(count 0)
  foreach(source IN LISTS ARGN)
    math(EXPR group "${count} / ${MEZZO_UNITY_FILES}")
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${group})
  endforeach()
endfunction()
