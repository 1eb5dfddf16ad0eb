#include "tests/unit/config_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int config_rig_parse(struct config_rig *rig, const char *text)
{
	const struct config_text file = {.text = text, .size = strlen(text)};

	return config_parse(&file, 1, rig->answer, NULL, &rig->complaints);
}

int config_rig_set_up(void **state)
{
	struct config_rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig->answer = calloc(1, sizeof(*rig->answer));
	assert_non_null(rig->answer);
	rig->complaints = BUF_NULL(3840);
	*state = rig;
	return 0;
}

int config_rig_tear_down(void **state)
{
	struct config_rig *rig = *state;

	buf_done(&rig->complaints);
	free(rig->answer);
	free(rig);
	return 0;
}

void config_rig_expect(struct config_rig *rig, const char *text, const char *said)
{
	buf_reset(&rig->complaints);
	assert_int_equal(config_rig_parse(rig, text), -EINVAL);
	if (!strstr(buf_text(&rig->complaints), said))
		fail_msg("`%s` is not in: %s", said, buf_text(&rig->complaints));
}
