sandboxd_fuzzer(fuzz_secret SOURCES fuzz_secret.c ${PROJECT_SOURCE_DIR}/shim/secrets.c
	${PROJECT_SOURCE_DIR}/shim/mask.c)
