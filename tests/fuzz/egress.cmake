foreach(target IN ITEMS dns tls_hello http_head)
	sandboxd_fuzzer(fuzz_${target} LIBS sandboxd_egress_pure)
endforeach()
