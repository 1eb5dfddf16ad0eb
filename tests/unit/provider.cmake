foreach(module IN ITEMS attach_head unwrap engine_json remote_json)
	sandboxd_unit_test(test_${module} LIBS sandboxd_provider_pure)
endforeach()
