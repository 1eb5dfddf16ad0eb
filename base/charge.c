#include "base/charge.h"

#include <errno.h>
#include <stddef.h>

#include "base/err.h"

int charge_take(struct charge *charge, struct charge_account *account, uint64_t amount)
{
	ASSERT(!charge->account);
	if (account->used > account->max || amount > account->max - account->used)
		return -EDQUOT;
	account->used += amount;
	charge->account = account;
	charge->amount = amount;
	return 0;
}

int charge_resize(struct charge *charge, uint64_t amount)
{
	struct charge_account *account = charge->account;
	uint64_t others;

	ASSERT(account && account->used >= charge->amount);
	others = account->used - charge->amount;
	/* Giving back is always possible, also when the maximum was lowered meanwhile. */
	if (amount > charge->amount && (others > account->max || amount > account->max - others))
		return -EDQUOT;
	account->used = others + amount;
	charge->amount = amount;
	return 0;
}

void charge_done(struct charge *charge)
{
	if (!charge->account)
		return;
	ASSERT(charge->account->used >= charge->amount);
	charge->account->used -= charge->amount;
	*charge = CHARGE_NULL;
}
