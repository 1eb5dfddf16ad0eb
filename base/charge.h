/*
 * Quota accounts. What is held for a client is charged; freeing the charge gives it back.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"

struct charge_account {
	uint64_t used;
	uint64_t max;
};

struct charge {
	struct charge_account *account; /* NULL: holds nothing */
	uint64_t amount;
};
#define CHARGE_NULL ((struct charge){0})

/* Take amount; 0, or -EDQUOT and nothing is taken. charge must hold nothing. */
MUST_USE int charge_take(struct charge *charge, struct charge_account *account, uint64_t amount);
/* Change the amount of a held charge. 0, or -EDQUOT and nothing has changed; less never fails. */
MUST_USE int charge_resize(struct charge *charge, uint64_t amount);
void charge_done(struct charge *charge); /* gives back; one that holds nothing is fine */
