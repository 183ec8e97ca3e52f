# mezzo_warnings(target): the project's warnings; errors only in a developer's build, so that a
# newer compiler never breaks a user's build.
function(mezzo_warnings target)
  # gcc 12 warns about overlapping copies inside its own std::string operator+ (GCC bug 105651).
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wconversion
    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Wno-restrict)
  # Other versions have other warnings, and users build with the presets too.
  if(MEZZO_DEVELOPER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
