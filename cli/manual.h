/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_MANUAL_H
#define KI_CLI_MANUAL_H

/* What `manual` writes from the tables, each in a file of its own. */

#include <stdio.h>

#include "options.h"

/* A man page as source for scdoc; of the whole tool if `verb` is NULL. */
void ki_manual_page(struct ki_bytes *out, const struct ki_verb *verb);

/* What a shell ("bash") completes: its template, filled in.  0, or -1. */
int ki_manual_shell(struct ki_bytes *out, const char *name, FILE *template);

/* What may be completed where a word for an argument stands. */
enum ki_manual_kind {
	KI_MANUAL_TEXT,
	KI_MANUAL_FILE,
	KI_MANUAL_DIRECTORY,
	KI_MANUAL_STORE,
	KI_MANUAL_PROGRAM,
	KI_MANUAL_CHOICE, /* "size|age": the values */
};

/* Of the word that `argument` begins with. */
enum ki_manual_kind ki_manual_kind(const char *argument);

static inline int ki_manual_has(const struct ki_verb *verb, int option)
{
	return (verb->options >> option & 1) != 0;
}

#endif /* KI_CLI_MANUAL_H */
