# What a release installs is also what the quickstart, the bench and the guest build: `product`. One
# list, so that no program is installed and not built, or started and not there.
add_custom_target(product)

function(sandboxd_product target directory)
	install(TARGETS ${target} RUNTIME DESTINATION ${directory})
	add_dependencies(product ${target})
endfunction()
