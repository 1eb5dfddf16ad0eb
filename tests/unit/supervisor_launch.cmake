# The launch engine's parts that need neither root nor a namespace; tests/kernel and
# tests/integration have the rest.
foreach(module IN ITEMS bpf cgroup etc_template idblock record usr_copies usr_mask)
	sandboxd_unit_test(test_${module} LIBS sandboxd_launch)
endforeach()
