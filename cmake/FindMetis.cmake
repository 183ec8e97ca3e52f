# Finds METIS, which Debian packages without a CMake file. Target: Metis::metis.

find_path(Metis_INCLUDE_DIR metis.h)
find_library(Metis_LIBRARY metis)
mark_as_advanced(Metis_INCLUDE_DIR Metis_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Metis REQUIRED_VARS Metis_LIBRARY Metis_INCLUDE_DIR)

if(Metis_FOUND AND NOT TARGET Metis::metis)
  add_library(Metis::metis UNKNOWN IMPORTED)
  set_target_properties(Metis::metis PROPERTIES
    IMPORTED_LOCATION ${Metis_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${Metis_INCLUDE_DIR})
endif()
