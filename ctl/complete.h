/*
 * Completion of command lines in shells.
 */
#pragma once

/* The files of ctl/completion, compiled in; the last one's shell is NULL. */
struct completion_script {
	const char *shell;
	const unsigned char *text;
};
extern const struct completion_script completion_scripts[];

/* Print what can stand for the last of the words behind the program's name. Exit status. */
int complete_words(int argc, char **argv);
