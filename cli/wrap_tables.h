/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_WRAP_TABLES_H
#define KI_CLI_WRAP_TABLES_H

/* How a row of wrap_tables.c says what an option means, to wrap_rules.c. */

#include "wrap.h"

enum shape {
	ALONE,	/* the argument as it is */
	JOINED, /* its value follows at once */
	NEXT,	/* its value is the next argument */
	VALUE,	/* the next argument, or what stands behind '=' */
};

enum role {
	PLAIN,
	INPUT,
	FOLDER, /* of includes */
	OUTPUT,
	BINARY,	  /* there must be an output's name */
	PRINTING, /* standard output is the output */
	LISTING,  /* it writes a list of includes */
	LIST,	  /* to this file */
	BASE,	  /* of the outputs' names */
	PLACE,	  /* their directory */
	INNER,	  /* options of a compiler inside, with folders */
	INNER_PLAIN,
	ENDING,	    /* the option's name is that of the output's ending */
	HOST_WORDS, /* options of the host's compiler, one of a list each */
	PTXAS_WORDS,
};

struct ki_wrap_option {
	const char *name;
	enum shape shape;
	enum role role;
};

/* Ends with a row without name. */
extern const struct ki_wrap_rule ki_wrap_rules[];

/* What may stand in HOST_WORDS and PTXAS_WORDS; "PREFIX*" is all that begin so. */
extern const char *const ki_wrap_host_words[];
extern const char *const ki_wrap_ptxas_words[];

#endif /* KI_CLI_WRAP_TABLES_H */
