foreach(name IN ITEMS attach_head unwrap)
	sandboxd_fuzzer(fuzz_${name} LIBS sandboxd_provider_pure)
endforeach()
