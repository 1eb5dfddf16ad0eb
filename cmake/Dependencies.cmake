# All are Debian 12 packages. Which target may link which is decided where the target is made.
find_package(PkgConfig REQUIRED)
foreach(dep IN ITEMS
	libseccomp:SECCOMP libcap:CAP libsystemd:SYSTEMD libmicrohttpd:MHD sqlite3:SQLITE libpq:PQ
	yaml-0.1:YAML jansson:JANSSON inih:INIH libnl-route-3.0:NLROUTE libsodium:SODIUM hiredis:HIREDIS
	libarchive:ARCHIVE libcurl:CURL nettle:NETTLE liburiparser:URIPARSER libcares:CARES openssl:OPENSSL
	expat:EXPAT)
	string(REPLACE ":" ";" pair ${dep})
	list(GET pair 0 module)
	list(GET pair 1 name)
	pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${module})
endforeach()
# Debian's package of libwslay has no pkg-config file.
find_library(WSLAY_LIBRARY wslay REQUIRED)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
