# SPDX-License-Identifier: BSD-2-Clause
# What the three drop-in libraries have in common: they lie together in <build>/lib (installed:
# lib/verbena) with their soname and unversioned links, export what their map says, and stay loaded
# once loaded, since programs dlclose them while threads live. Like the genuine ones they have no
# RPATH: LD_LIBRARY_PATH, which `verbena run` sets, decides for all three of them.
include_guard(GLOBAL)

function(vb_face target soversion version map)
	set(map ${CMAKE_CURRENT_SOURCE_DIR}/${map})
	set_target_properties(${target} PROPERTIES
		VERSION ${version}
		SOVERSION ${soversion}
		LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib
		SKIP_BUILD_RPATH ON
		LINK_DEPENDS ${map})
	target_link_options(${target} PRIVATE
		LINKER:--version-script=${map} LINKER:-z,nodelete LINKER:-z,now LINKER:-z,relro)
	if(NOT VB_SANITIZE)
		target_link_options(${target} PRIVATE LINKER:-z,defs)
	endif()
	install(TARGETS ${target} LIBRARY DESTINATION lib/verbena)
endfunction()
