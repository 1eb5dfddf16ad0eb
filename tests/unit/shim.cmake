# These start the real shim in namespaces of its own; without root they skip.
sandboxd_unit_test(test_shim_commands SOURCES test_shim_commands.c shim_rig.c LIBS sandboxd_base)
add_dependencies(test_shim_commands sandbox-shim)
