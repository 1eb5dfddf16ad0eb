#include "supervisor/weaken.h"

#ifdef SANDBOXD_TEST_HOOKS

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "base/clock.h"
#include "base/plant.h"
#include "base/str.h"

#include "sandboxd/policy_image.h"

static const struct weaken_name {
	const char *name;
	enum weaken what;
} layers[] =
	{
		{"seccomp",        WEAKEN_SECCOMP       },
		{"userns-ceiling", WEAKEN_USERNS_CEILING},
		{"caps",           WEAKEN_CAPS          },
		{"hidepid",        WEAKEN_HIDEPID       },
		{"landlock",       WEAKEN_LANDLOCK      },
		{"overlay",        WEAKEN_OVERLAY       },
		{"proc-mask",      WEAKEN_PROC_MASK     },
		{"keyring",        WEAKEN_KEYRING       },
		{"userns-owner",   WEAKEN_USERNS_OWNER  },
		{"read-only",      PLANT_MOUNT          },
},
  plants[] = {
	  {"syscall-allowed", PLANT_SYSCALL},
	  {"mount-writable", PLANT_MOUNT},
	  {"cap-kept", PLANT_CAP},
	  {"fd-leaked", PLANT_FD},
	  {"ids-shared", PLANT_IDS},
	  {"root-cap-kept", PLANT_ROOT_CAP},
	  {"landlock-wide", PLANT_LANDLOCK},
};

static unsigned int find(const char *variable, const struct weaken_name *names, size_t n)
{
	unsigned int found = 0;

	for (size_t i = 0; i < n; i++)
		if (plant_listed(variable, names[i].name))
			found |= names[i].what;
	return found;
}

bool weakened(enum weaken what)
{
	return (find("SANDBOX_LAYER_OFF", layers, ARRAY_SIZE(layers)) |
		find("SANDBOX_PLANT", plants, ARRAY_SIZE(plants))) &
	       what;
}

/* Another filter for commands, behind the others: `first`, and then the old one when `keep`. */
static int replace_filter(void **data, size_t *size, const struct sock_filter *first, uint32_t n,
			  bool keep)
{
	struct session_policy policy;

	memcpy(&policy, *data, sizeof(policy));
	struct policy_span old = policy.filter[POLICY_FILTER_COMMAND];
	struct policy_span new = {.offset = policy.total_bytes, .n = n + (keep ? old.n : 0)};
	size_t bytes = policy.total_bytes + new.n * sizeof(struct sock_filter);
	uint8_t *grown = realloc(*data, bytes);
	if (!grown)
		return -ENOMEM;
	uint8_t *at = grown + policy.total_bytes;
	memcpy(at, first, n * sizeof(*first));
	if (keep)
		memcpy(at + n * sizeof(*first), grown + old.offset, old.n * sizeof(*first));
	policy.filter[POLICY_FILTER_COMMAND] = new;
	policy.total_bytes = (uint32_t)bytes;
	memcpy(grown, &policy, sizeof(policy));
	*data = grown;
	*size = bytes;
	return 0;
}

int weaken_policy(void **data, size_t *size)
{
	static const struct sock_filter all[] = {
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static const struct sock_filter add_key[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* struct seccomp_data.nr */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_add_key, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	if (weakened(WEAKEN_SECCOMP))
		return replace_filter(data, size, all, ARRAY_SIZE(all), false);
	if (weakened(PLANT_SYSCALL))
		return replace_filter(data, size, add_key, ARRAY_SIZE(add_key), true);
	return 0;
}

uint32_t weaken_base(struct idblock *idblock, uint32_t base)
{
	static uint32_t first;

	if (first == 0 || !weakened(PLANT_IDS)) {
		first = base;
		return base;
	}
	idblock_release(idblock, base, clock_boottime());
	return first;
}

#endif
