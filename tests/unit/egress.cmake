foreach(module IN ITEMS dns tls_hello http_head names relay_policy descriptors)
	sandboxd_unit_test(test_${module} LIBS sandboxd_egress_pure)
endforeach()
