# mezzo_warnings(target): the warnings of the house; as errors in a developer's build only, so that
# a newer compiler never breaks a user's.
function(mezzo_warnings target)
  # gcc 12 warns of overlapping copies inside its own std::string operator+ (GCC bug 105651).
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor -Wno-restrict)
  # Other versions know other warnings, and the presets are users' too.
  if(MEZZO_DEVELOPER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
