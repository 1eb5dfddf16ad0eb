sandboxd_unit_test(test_shim_outbox SOURCES test_shim_outbox.c ${PROJECT_SOURCE_DIR}/shim/outbox.c
	LIBS sandboxd_base)
sandboxd_unit_test(test_shim_denials SOURCES test_shim_denials.c ${PROJECT_SOURCE_DIR}/shim/denials.c
	${PROJECT_SOURCE_DIR}/shim/message.c LIBS sandboxd_base)
sandboxd_unit_test(test_shim_mask SOURCES test_shim_mask.c ${PROJECT_SOURCE_DIR}/shim/mask.c
	LIBS sandboxd_base)
sandboxd_unit_test(test_watch_folders SOURCES test_watch_folders.c ${PROJECT_SOURCE_DIR}/shim/watch_folders.c
	LIBS sandboxd_base)
set(_shim ${PROJECT_SOURCE_DIR}/shim)
sandboxd_unit_test(test_files_ops SOURCES test_files_ops.c ${_shim}/files_ops.c ${_shim}/files_tree.c ${_shim}/files_watch.c
	${_shim}/watch_folders.c ${_shim}/message.c LIBS sandboxd_base)

# These start the real shim under the real policy, in namespaces of its own; without root they skip.
foreach(name IN ITEMS test_shim_commands test_shim_files test_shim_secrets test_shim_stream)
	sandboxd_unit_test(${name} SOURCES ${name}.c shim_rig.c LIBS sandboxd_base sandboxd_policy_image)
	add_dependencies(${name} sandbox-shim sandbox-loader policy_image)
endforeach()

sandboxd_unit_test(test_shim_start)
add_dependencies(test_shim_start sandbox-shim)
