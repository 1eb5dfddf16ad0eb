foreach(module IN ITEMS err fd io sockmsg buf ring slots str num charge id clock log path frame plan launch loop)
	sandboxd_unit_test(test_${module})
endforeach()
sandboxd_unit_test(test_json LIBS sandboxd_json)
