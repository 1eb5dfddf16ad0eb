# sandbox-shim is linked with musl where the build host has it. glibc's start-up asks the processor what
# it is some eighty times, and in a virtual machine each CPUID is an exit to the hypervisor: 0.5 ms of a
# launch. musl asks nothing, and the program is an eighth of the size. Without musl the shim is a static
# glibc program that does the same, later.
option(SANDBOXD_MUSL "Link the shim with musl where it is found (musl-dev)" ON)

find_path(MUSL_INCLUDE_DIR bits/alltypes.h PATHS /usr/include/x86_64-linux-musl NO_DEFAULT_PATH)
find_path(MUSL_LIB_DIR rcrt1.o PATHS /usr/lib/x86_64-linux-musl NO_DEFAULT_PATH)
find_path(KERNEL_INCLUDE_DIR linux/landlock.h PATHS /usr/include NO_DEFAULT_PATH)
find_path(KERNEL_ASM_DIR asm/unistd_64.h PATHS /usr/include/x86_64-linux-gnu /usr/include NO_DEFAULT_PATH)
if(NOT SANDBOXD_MUSL OR NOT MUSL_INCLUDE_DIR OR NOT MUSL_LIB_DIR OR NOT KERNEL_INCLUDE_DIR OR NOT KERNEL_ASM_DIR)
	message(STATUS "sandbox-shim: static glibc (no musl-dev)")
	add_library(sandboxd_small ALIAS sandboxd_static)
	return()
endif()
message(STATUS "sandbox-shim: musl")

# The kernel's headers alone: nothing of glibc may slip in beside them.
set(_kernel ${PROJECT_BINARY_DIR}/kernel-headers)
file(MAKE_DIRECTORY ${_kernel})
foreach(_pair IN ITEMS linux:${KERNEL_INCLUDE_DIR} asm-generic:${KERNEL_INCLUDE_DIR} asm:${KERNEL_ASM_DIR})
	string(REGEX MATCH "^[^:]+" _name ${_pair})
	string(REGEX REPLACE "^[^:]+:" "" _dir ${_pair})
	file(CREATE_LINK ${_dir}/${_name} ${_kernel}/${_name} SYMBOLIC)
endforeach()

execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=include
	OUTPUT_VARIABLE _compiler_include OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-libgcc-file-name
	OUTPUT_VARIABLE _libgcc OUTPUT_STRIP_TRAILING_WHITESPACE)

# musl has no fortified headers.
list(FILTER _opts EXCLUDE REGEX "_FORTIFY_SOURCE")
add_library(sandboxd_small INTERFACE)
target_compile_options(sandboxd_small INTERFACE ${_opts} -nostdinc
	"SHELL:-isystem '${MUSL_INCLUDE_DIR}'" "SHELL:-isystem '${_compiler_include}'" "SHELL:-isystem '${_kernel}'")
target_compile_definitions(sandboxd_small INTERFACE ${_defs})
target_include_directories(sandboxd_small INTERFACE ${_incs})
target_link_options(sandboxd_small INTERFACE ${_links} -nostdlib
	${MUSL_LIB_DIR}/rcrt1.o ${MUSL_LIB_DIR}/crti.o
	$<$<C_COMPILER_ID:Clang>:-Wno-unused-command-line-argument>)
target_link_libraries(sandboxd_small INTERFACE -static-pie -Wl,--start-group ${MUSL_LIB_DIR}/libc.a ${_libgcc}
	-Wl,--end-group ${MUSL_LIB_DIR}/crtn.o)
