foreach(target IN ITEMS egress_rule frame plan tether)
	sandboxd_fuzzer(fuzz_${target})
endforeach()
sandboxd_fuzzer(fuzz_endpoint_value LIBS sandboxd_endpoint)
