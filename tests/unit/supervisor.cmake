foreach(module IN ITEMS ceilings config_check options serve trusted_dir log_relay)
	sandboxd_unit_test(test_${module} LIBS sandboxd_supervisor)
endforeach()
sandboxd_unit_test(test_config_parse LIBS sandboxd_config_domain sandboxd_supervisor)
