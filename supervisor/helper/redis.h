/*
 * `sandboxd-helper redis`: one struct redis_request from standard input, one struct redis_report.
 */
#pragma once

/* The exit status. */
int redis_run(void);
