foreach(target IN ITEMS frame plan)
	sandboxd_fuzzer(fuzz_${target})
endforeach()
