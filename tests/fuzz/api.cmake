foreach(target IN ITEMS component_name progress spec)
	sandboxd_fuzzer(fuzz_${target} LIBS sandboxd_api_domain)
endforeach()
