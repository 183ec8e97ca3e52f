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
