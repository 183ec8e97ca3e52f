# libtorch's headers take 5 to 12 seconds per file, or one if they are precompiled once per target.
# A file still includes all it uses (CI compiles every public header alone).

# mezzo_precompile(target header...): headers that most files of the target include.
function(mezzo_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(MEZZO_CCACHE)
    # ccache needs this to cache files that use a precompiled header with gcc.
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

# mezzo_compile_together(target name source...): compiles groups of MEZZO_UNITY_FILES sources, in
# this order, as one file each: most of the compile time is libtorch's headers and templates. Names
# in anonymous namespaces must differ within a group; the preset dev compiles each file alone.
set(MEZZO_UNITY_FILES 8)
function(mezzo_compile_together target name)
  if(NOT MEZZO_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # gcc treats the files of a group as headers and warns about their anonymous namespaces.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  set(count 0)
  foreach(source IN LISTS ARGN)
    math(EXPR group "${count} / ${MEZZO_UNITY_FILES}")
    math(EXPR count "${count} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${group})
  endforeach()
endfunction()
