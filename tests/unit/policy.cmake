# Unit tests of policy/.
sandboxd_unit_test(test_profile SOURCES test_profile.c policy_text.c LIBS sandboxd_policy)
sandboxd_unit_test(test_resolve SOURCES test_resolve.c policy_text.c LIBS sandboxd_policy)
sandboxd_unit_test(test_bpfsim LIBS sandboxd_policy)
