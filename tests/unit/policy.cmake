# Unit tests of policy/.
sandboxd_unit_test(test_profile SOURCES test_profile.c policy_text.c LIBS sandboxd_policy)
sandboxd_unit_test(test_resolve SOURCES test_resolve.c policy_text.c LIBS sandboxd_policy)
sandboxd_unit_test(test_bpfsim LIBS sandboxd_policy)
sandboxd_unit_test(test_lint SOURCES test_lint.c policy_text.c LIBS sandboxd_policy)
sandboxd_unit_test(test_image LIBS sandboxd_policy_image)
sandboxd_unit_test(test_policy LIBS sandboxd_policy)
add_dependencies(test_policy policy_image)
sandboxd_unit_test(test_filters LIBS sandboxd_policy_image PkgConfig::SQLITE)
add_dependencies(test_filters policy_image)
sandboxd_unit_test(test_compile SOURCES test_compile.c ${PROJECT_SOURCE_DIR}/policy/compile.c LIBS sandboxd_policy)

if(SANDBOXD_TEST_HOOKS)
	sandboxd_unit_test(test_learn SOURCES test_learn.c ${PROJECT_SOURCE_DIR}/policy/learn.c LIBS sandboxd_policy)
	target_compile_definitions(test_learn PRIVATE TEST_SETS_DIR="${PROJECT_SOURCE_DIR}/policy/syscalls")
	add_dependencies(test_learn sandbox-policyc)
endif()

# The compiler's own command line, on the product's policy.
set(_policy ${PROJECT_SOURCE_DIR}/policy)
add_test(NAME unit.policyc_check COMMAND sandbox-policyc check --sets ${_policy}/syscalls
	${_policy}/profiles/component.profile ${_policy}/profiles/agent.profile
	${_policy}/profiles/worker-api.profile ${_policy}/profiles/worker-egress.profile
	${_policy}/profiles/worker-config.profile
	${_policy}/profiles/worker-helper.profile ${_policy}/profiles/worker-api-network.profile
	${_policy}/profiles/worker-redis.profile ${_policy}/profiles/worker-template.profile
	${_policy}/profiles/worker-provider.profile ${_policy}/profiles/worker-remote.profile
	${_policy}/profiles/worker-s3.profile)
add_test(NAME unit.policyc_explain COMMAND sandbox-policyc explain --sets ${_policy}/syscalls
	${_policy}/profiles/component.profile)
set_tests_properties(unit.policyc_explain PROPERTIES
	PASS_REGULAR_EXPRESSION "clone3 +ENOSYS.*EPERM if arg1 & 0xffffffff == 0x5412|EPERM if arg1 & 0xffffffff == 0x5412.*clone3 +ENOSYS")
add_test(NAME unit.policyc_dump COMMAND sandbox-policyc dump ${PROJECT_BINARY_DIR}/bin/policy.img)
set_tests_properties(unit.policyc_dump PROPERTIES PASS_REGULAR_EXPRESSION "0 component session [0-9a-f]+")
add_test(NAME unit.policyc_unused_set COMMAND sandbox-policyc check --sets ${_policy}/syscalls
	${_policy}/profiles/worker-config.profile
	${_policy}/profiles/worker-helper.profile)
set_tests_properties(unit.policyc_unused_set PROPERTIES PASS_REGULAR_EXPRESSION "no profile uses this set")
add_test(NAME unit.policyc_usage COMMAND sandbox-policyc frobnicate)
set_tests_properties(unit.policyc_usage PROPERTIES PASS_REGULAR_EXPRESSION "usage: sandbox-policyc")
set_tests_properties(unit.policyc_check unit.policyc_explain unit.policyc_dump unit.policyc_unused_set
	unit.policyc_usage PROPERTIES LABELS unit TIMEOUT 60)
