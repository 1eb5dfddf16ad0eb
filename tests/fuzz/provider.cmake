foreach(name IN ITEMS attach_head remote_json unwrap)
	sandboxd_fuzzer(fuzz_${name} LIBS sandboxd_provider_pure)
endforeach()
