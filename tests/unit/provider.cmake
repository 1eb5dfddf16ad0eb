foreach(module IN ITEMS unwrap engine_json)
	sandboxd_unit_test(test_${module} LIBS sandboxd_provider_pure)
endforeach()
sandboxd_unit_test(test_attach LIBS sandboxd_provider_parts)
