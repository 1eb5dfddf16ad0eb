# Parts of sandboxctl that need no service.
sandboxd_unit_test(test_ctl_print
	SOURCES test_ctl_print.c ${PROJECT_SOURCE_DIR}/ctl/print.c
	LIBS sandboxd_base sandboxd_json)
sandboxd_unit_test(test_ctl_options
	SOURCES test_ctl_options.c ${PROJECT_SOURCE_DIR}/ctl/options.c)
sandboxd_unit_test(test_ctl_proof
	SOURCES test_ctl_proof.c ${PROJECT_SOURCE_DIR}/ctl/proof_outside.c
	LIBS sandboxd_base sandboxd_json)
