/*
 * Does a BPF program say what the resolved filter says? Asked for every number on every ABI, and
 * for calls with argument rules over every boundary value, also with garbage in the high halves.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

struct resolve_filter;
struct sock_filter;

struct equiv_report {
	size_t n_cases;
	size_t n_executed_max; /* instructions of the longest way through */
};

/* 0, or -EILSEQ with the first difference in err. ret_report may be NULL. */
MUST_USE int equiv_check(const struct resolve_filter *filter, const struct sock_filter *program,
			 size_t n, struct equiv_report *ret_report, struct err *err);
