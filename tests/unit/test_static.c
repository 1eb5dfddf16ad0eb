/*
 * The static build of base runs without a dynamic loader, as shim and jail tools do.
 */
#include <sys/auxv.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"

int main(void)
{
	char text[CLOCK_ISO_BYTES];
	struct id id;

	clock_format_iso(clock_realtime(), text);
	if (id_random(&id) < 0 || id_is_null(&id))
		return 1;
	/* AT_BASE is where the kernel mapped the dynamic loader: 0 without one. */
	return fd_close_from(3) < 0 || getauxval(AT_BASE) != 0;
}
