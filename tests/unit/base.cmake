foreach(module IN ITEMS err fd io landlock sockmsg buf ring slots list str num charge id clock log path frame plan launch loop config_bundle
	secret session_name host_name net_class egress_rule tether)
	sandboxd_unit_test(test_${module})
endforeach()
sandboxd_unit_test(test_json LIBS sandboxd_json)

# No cmocka here: the point is the link.
add_executable(test_static test_static.c)
target_link_libraries(test_static PRIVATE sandboxd_static sandboxd_base_static)
set_target_properties(test_static PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/unit)
add_test(NAME unit.test_static COMMAND test_static)
set_tests_properties(unit.test_static PROPERTIES LABELS unit TIMEOUT 60)
sandboxd_unit_test(test_endpoint_value LIBS sandboxd_endpoint)
