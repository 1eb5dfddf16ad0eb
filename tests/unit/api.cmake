foreach(module IN ITEMS celery_message component_name endpoint environment spec session registry quota tenant_quota flow load frames job progress
	summary janitor_plan denials)
	sandboxd_unit_test(test_${module} LIBS sandboxd_api_domain)
endforeach()
sandboxd_unit_test(test_store SOURCES test_store.c LIBS sandboxd_api_store PkgConfig::SQLITE PkgConfig::PQ)
sandboxd_unit_test(test_migrate SOURCES test_migrate.c LIBS sandboxd_api_store PkgConfig::SQLITE)
sandboxd_unit_test(test_pg_dsn LIBS sandboxd_api_store)
sandboxd_unit_test(test_metrics LIBS sandboxd_api_metrics)
sandboxd_unit_test(test_egress_policy LIBS sandboxd_api_domain PkgConfig::JANSSON)
