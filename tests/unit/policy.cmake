# Unit tests of policy/.
sandboxd_unit_test(test_profile SOURCES test_profile.c policy_text.c LIBS sandboxd_policy)
sandboxd_unit_test(test_resolve SOURCES test_resolve.c policy_text.c LIBS sandboxd_policy)
sandboxd_unit_test(test_bpfsim LIBS sandboxd_policy)
sandboxd_unit_test(test_lint SOURCES test_lint.c policy_text.c LIBS sandboxd_policy)
sandboxd_unit_test(test_image LIBS sandboxd_policy_image)
sandboxd_unit_test(test_policy LIBS sandboxd_policy)
add_dependencies(test_policy policy_image)
