# Warning and hardening flags. `sandboxd_flags` carries what every target takes; `sandboxd_shared_flags`
# and `sandboxd_static_flags` add the link mode. Each probed flag is used only where the compiler knows it.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

add_library(sandboxd_flags INTERFACE)
target_include_directories(sandboxd_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include
	${PROJECT_BINARY_DIR}/generated)
target_compile_definitions(sandboxd_flags INTERFACE _GNU_SOURCE
	SANDBOXD_VERSION="${PROJECT_VERSION}"
	$<$<BOOL:${SANDBOXD_TEST_HOOKS}>:SANDBOXD_TEST_HOOKS=1>)

function(sandboxd_probe_flags)
	foreach(flag IN LISTS ARGN)
		string(MAKE_C_IDENTIFIER "HAVE_FLAG${flag}" var)
		check_c_compiler_flag("${flag}" ${var})
		if(${var})
			target_compile_options(sandboxd_flags INTERFACE ${flag})
		endif()
	endforeach()
endfunction()

sandboxd_probe_flags(
	-Wall -Wextra -Wpedantic        # the baseline
	-Wshadow                        # an inner name that hides an outer one
	-Wformat=2 -Wformat-signedness  # format strings are checked, also the non-literal ones
	-Wno-format-zero-length         # log_line's "no fields" is ""
	-Wvla -Walloca                  # stack use stays provable
	-Wundef                         # a misspelt macro in #if
	-Wstrict-prototypes -Wold-style-definition -Wmissing-prototypes -Wmissing-declarations
	-Wredundant-decls -Wnested-externs # one declaration, in a header
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wcast-align=strict
	-Wconversion -Wsign-conversion -Warith-conversion # every narrowing is visible
	-Wimplicit-fallthrough -Wswitch-enum
	-Wnull-dereference -Winit-self -Wfloat-equal -Wdate-time -Wstrict-aliasing=2
	-Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wjump-misses-init
	-Wstringop-overflow=4 -Warray-bounds=2 -Wformat-overflow=2 -Wformat-truncation=2
	-Walloc-zero
	-Wmissing-variable-declarations -Wcomma -Wassign-enum # clang's own
)
if(SANDBOXD_WERROR)
	target_compile_options(sandboxd_flags INTERFACE -Werror)
endif()
if(NOT SANDBOXD_SANITIZE)
	# Sanitizers enlarge frames, so the stack bound holds for the product's builds only.
	sandboxd_probe_flags(-Wstack-usage=16384 -Wframe-larger-than=16384)
endif()

sandboxd_probe_flags(
	-fstack-protector-strong -fstack-clash-protection -fcf-protection=full
	-fno-common                     # two globals of one name are an error
	-fvisibility=hidden
	-fno-strict-overflow -fno-delete-null-pointer-checks # no surprise from a missed check
	-ftrivial-auto-var-init=zero -fzero-call-used-regs=used-gpr
)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT SANDBOXD_SANITIZE)
	target_compile_options(sandboxd_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
target_link_options(sandboxd_flags INTERFACE
	-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,-z,separate-code -Wl,--as-needed -Wl,--fatal-warnings)

if(SANDBOXD_SANITIZE)
	target_compile_options(sandboxd_flags INTERFACE -fsanitize=${SANDBOXD_SANITIZE}
		-fno-sanitize-recover=all -fno-omit-frame-pointer)
	target_link_options(sandboxd_flags INTERFACE -fsanitize=${SANDBOXD_SANITIZE})
endif()
if(SANDBOXD_FUZZ)
	# Coverage feedback for libFuzzer in all of our code; only the targets take its main.
	target_compile_options(sandboxd_flags INTERFACE -fsanitize=fuzzer-no-link)
	target_link_options(sandboxd_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(SANDBOXD_COVERAGE)
	target_compile_options(sandboxd_flags INTERFACE --coverage)
	target_link_options(sandboxd_flags INTERFACE --coverage)
endif()

# What runs inside a session never has a sanitizer, whose runtime needs /proc/self/maps.
add_library(sandboxd_plain INTERFACE)
get_target_property(_opts sandboxd_flags INTERFACE_COMPILE_OPTIONS)
get_target_property(_defs sandboxd_flags INTERFACE_COMPILE_DEFINITIONS)
get_target_property(_incs sandboxd_flags INTERFACE_INCLUDE_DIRECTORIES)
get_target_property(_links sandboxd_flags INTERFACE_LINK_OPTIONS)
list(FILTER _opts EXCLUDE REGEX "sanitize|coverage")
list(FILTER _links EXCLUDE REGEX "sanitize|coverage")
target_compile_options(sandboxd_plain INTERFACE ${_opts})
target_compile_definitions(sandboxd_plain INTERFACE ${_defs})
target_include_directories(sandboxd_plain INTERFACE ${_incs})
target_link_options(sandboxd_plain INTERFACE ${_links})

# Most of it (the shim and the jail tools) runs where no library is: static-pie.
add_library(sandboxd_static INTERFACE)
target_link_options(sandboxd_static INTERFACE
	$<$<C_COMPILER_ID:Clang>:-Wno-unused-command-line-argument>) # for the -pie that loses
# As a library item: CMake puts its own -pie behind link options, and the last of the two wins.
target_link_libraries(sandboxd_static INTERFACE sandboxd_plain -static-pie)
