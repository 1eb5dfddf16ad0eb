sandboxd_unit_test(test_auth LIBS sandboxd_api_http_pure)
sandboxd_unit_test(test_handshake LIBS sandboxd_api_http_pure)
sandboxd_unit_test(test_lines LIBS sandboxd_api_http_pure)
sandboxd_unit_test(test_shares LIBS sandboxd_api_http_pure)
sandboxd_unit_test(test_runtime_errors LIBS sandboxd_api_http_pure)
sandboxd_unit_test(test_routes
	SOURCES test_routes.c ${PROJECT_SOURCE_DIR}/supervisor/api/http/openapi.c
	${PROJECT_SOURCE_DIR}/supervisor/api/http/features.c
	LIBS sandboxd_api_routes sandboxd_api_http_pure sandboxd_json)
sandboxd_unit_test(test_snapshot_failure
	SOURCES test_snapshot_failure.c ${PROJECT_SOURCE_DIR}/supervisor/api/snapshot_failure.c
	LIBS sandboxd_api_http_pure)
sandboxd_unit_test(test_http_left SOURCES test_http_left.c no_routes.c LIBS sandboxd_api_http)
sandboxd_unit_test(test_file_reply
	SOURCES test_file_reply.c no_routes.c ${PROJECT_SOURCE_DIR}/supervisor/api/file_reply.c
	LIBS sandboxd_api_http)
sandboxd_unit_test(test_api_config LIBS sandboxd_api_http_pure)
foreach(name IN ITEMS test_shim_link test_shim_link_bounds)
	sandboxd_unit_test(${name} SOURCES ${name}.c shim_link_rig.c LIBS sandboxd_api_link)
endforeach()
sandboxd_unit_test(test_supervisor_client LIBS sandboxd_api_link)
sandboxd_unit_test(test_egress_link LIBS sandboxd_api_link)
