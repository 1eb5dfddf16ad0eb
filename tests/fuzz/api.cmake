foreach(target IN ITEMS component_name progress spec)
	sandboxd_fuzzer(fuzz_${target} LIBS sandboxd_api_domain)
endforeach()
sandboxd_fuzzer(fuzz_handshake LIBS sandboxd_api_http_pure)
