# `cpack --config build/…/CPackConfig.cmake` makes one Debian package. Configure with
# -DCMAKE_INSTALL_PREFIX=/usr for it: the programs carry the path of their workers.
set(CPACK_GENERATOR DEB)
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME sandboxd)
set(CPACK_PACKAGE_CONTACT "sandboxd maintainers <root@localhost>")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd (>= 252)")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
	${PROJECT_SOURCE_DIR}/systemd/debian/conffiles
	${PROJECT_SOURCE_DIR}/systemd/debian/preinst
	${PROJECT_SOURCE_DIR}/systemd/debian/postinst
	${PROJECT_SOURCE_DIR}/systemd/debian/prerm
	${PROJECT_SOURCE_DIR}/systemd/debian/postrm)
include(CPack)

# What `cmake --install` wrote, removed again; state and users stay, as with a removed package.
add_custom_target(uninstall
	COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/cmake/Uninstall.cmake
	WORKING_DIRECTORY ${PROJECT_BINARY_DIR}
	VERBATIM)
