/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_OPTIONS_H
#define KI_CLI_OPTIONS_H

/*
 * The command line as two tables, one of options and one of verbs (verbs.c).
 * Parser, help, man pages and completions are made from them; nothing else
 * knows an option's spelling.
 *
 * The word for an argument says what a shell may complete, of options and of
 * verbs alike: FILE, DIR, STORE and URL (a store), PROGRAM, KEY, or the values
 * there are ("size|age|used"; of a verb the first argument's).  Of any other word
 * it knows nothing.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* Kinds of stores, as in "log:DIR"; --store says them, too. */
#define KI_STORES "log file neo sycl pack"

/* X(ID, "name", 'letter' or 0, "ARGUMENT" or NULL, "what it does") */
#define KI_OPTIONS(X)                                                          \
	X(HELP, "help", 'h', NULL, "show this text")                           \
	X(VERSION, "version", 'V', NULL, "show the version")                   \
	X(JSON, "json", 0, NULL, "print one JSON object")                      \
	X(STORE, "store", 0, "URL",                                            \
	  "use this store: {log,file,neo,sycl}:DIR, pack:FILE")                \
	X(ALL, "all", 'a', NULL, "show kiln's own bookkeeping, too")           \
	X(WAIT, "wait", 'w', NULL,                                             \
	  "return when the jobs of the program are done")                      \
	X(PACK, "pack", 0, "FILE",                                             \
	  "have this pack asked behind the store; may come again")             \
	X(VERBOSE, "verbose", 'v', NULL,                                       \
	  "say whether it was cached, and why not")                            \
	X(ZERO, "zero", 'z', NULL, "set the counters to 0 after showing them") \
	X(SINCE, "since", 0, "WHEN",                                           \
	  "count from a day (2026-11-22) or an age (7d, 12h) on")              \
	X(LAST_RUN, "last-run", 0, NULL, "show what the last run did")         \
	X(APPLICATIONS, "applications", 0, NULL,                               \
	  "show the applications that used the store last")                    \
	X(PROMETHEUS, "prometheus", 0, NULL, "print metrics for Prometheus")   \
	X(REPAIR, "repair", 0, NULL,                                           \
	  "put damaged entries aside, and the account right")                  \
	X(ACCOUNTING, "accounting", 0, NULL,                                   \
	  "read no entry: put right what is kept count of")                    \
	X(MAX_SIZE, "max-size", 0, "SIZE",                                     \
	  "evict as if this were the limit (500M), this once")                 \
	X(OLDER_THAN, "older-than", 0, "AGE",                                  \
	  "remove what was not used for this long (30d, 12h)")                 \
	X(MADE_BEFORE, "older-than", 0, "AGE",                                 \
	  "take what was made longer ago than this (30d, 12h)")                \
	X(MADE_SINCE, "newer-than", 0, "AGE",                                  \
	  "take what was made since then (30d, 12h)")                          \
	X(APPLICATION, "application", 0, "NAME",                               \
	  "take what this program uses (its path, or name)")                   \
	X(DEVICE, "device", 0, "NAME",                                         \
	  "take what is for devices with this in their names")                 \
	X(KEY, "key", 0, "NAME",                                               \
	  "sign with this key of yours; may come again")                       \
	X(NAMESPACE, "namespace", 0, "NAME", "take what is of this namespace") \
	X(QUOTA_OF, "namespace", 0, "NAME",                                    \
	  "of this namespace; '*': of each without its own")                   \
	X(QUOTA, "max-size", 0, "SIZE",                                        \
	  "with --namespace: what it may take (500M; 0: any size)")            \
	X(LARGER_THAN, "larger-than", 0, "SIZE",                               \
	  "take values of more than this (64K, 1M)")                           \
	X(SMALLER_THAN, "smaller-than", 0, "SIZE",                             \
	  "take values of less than this (64K, 1M)")                           \
	X(SORT, "sort", 0, "made|size|used|build|application",                 \
	  "what comes first")                                                  \
	X(LONG, "long", 'l', NULL, "whole keys and paths, and more columns")   \
	X(OUTPUT, "output", 'o', "FILE", "write there; - is standard output")  \
	X(BINARY_OF, "device", 0, "N",                                         \
	  "the binary for the N-th device of an OpenCL program")               \
	X(REPLACE, "replace", 0, NULL, "write over a file of that name")       \
	X(TRUST_UNSIGNED, "trust-unsigned", 0, NULL,                           \
	  "take a pack that nobody signed whom you trust")                     \
	X(LIMIT, "limit", 0, "SIZE",                                           \
	  "give the store this limit of its own (500M; 0: none)")              \
	X(EVICTION, "eviction", 0, "WHICH",                                    \
	  "what goes first when it is full: recency or cost")                  \
	X(QUARANTINE, "quarantine", 0, NULL,                                   \
	  "remove all damaged entries that were put aside")                    \
	X(D3D12, "d3d12", 0, NULL,                                             \
	  "clear the shader caches of D3D12 programs, no store")               \
	X(DRY_RUN, "dry-run", 'n', NULL,                                       \
	  "with --d3d12: say what there is, change nothing")                   \
	X(RETRY, "retry", 0, NULL,                                             \
	  "also what crashed or took too long before")                         \
	X(AT_ONCE, "at-once", 'j', "N",                                        \
	  "so many builds at once; else one for each processor")               \
	X(TIME_LIMIT, "time-limit", 0, "SECONDS",                              \
	  "give up a build after so long")                                     \
	X(MEMORY_LIMIT, "memory-limit", 0, "SIZE",                             \
	  "for all builds together; else half of the machine's")

enum ki_option {
#define KI_OPTION_ENUM(id, name, letter, argument, help) KI_OPTION_##id,
	KI_OPTIONS(KI_OPTION_ENUM)
#undef KI_OPTION_ENUM
		KI_N_OPTIONS
};

#define KI_HAS(id) ((uint64_t)1 << KI_OPTION_##id)

struct ki_option_row {
	const char *name;
	char letter;
	const char *argument;
	const char *help;
};

extern const struct ki_option_row ki_option_rows[KI_N_OPTIONS];

/* X(ID, number, "in a word", "what it means"): what a verb returns, and the
   program with it.  The last three are of `kiln run` alone, where all others are
   the program's. */
#define KI_EXITS(X)                                                            \
	X(OK, 0, "ok", "done, and nothing found that is wrong")                \
	X(FAILED, 1, "failed", "what was to be done could not be")             \
	X(USAGE, 2, "usage", "the command line or a setting is wrong")         \
	X(NOT_FOUND, 3, "not found", "there is no such entry, or pack")        \
	X(FINDINGS, 4, "findings", "something is not as it should be")         \
	X(UNAVAILABLE, 5, "unavailable", "the store is busy or unusable")      \
	X(RUN_FAILED, 125, "kiln failed", "the program was not started")       \
	X(RUN_NOT_EXECUTABLE, 126, "not executable", "it may not be executed") \
	X(RUN_NOT_FOUND, 127, "not found", "there is no such program")

enum ki_exit {
#define KI_EXIT_ENUM(id, number, word, meaning) KI_EXIT_##id = (number),
	KI_EXITS(KI_EXIT_ENUM)
#undef KI_EXIT_ENUM
};

struct ki_exit_row {
	int number;
	const char *word;
	const char *meaning;
};

/* Ends with a row whose word is NULL. */
extern const struct ki_exit_row ki_exit_rows[];

struct ki_command;
typedef int ki_verb_fn(const struct ki_command *command);

struct ki_verb {
	const char *name;
	const char *arguments; /* "KEY", for the help */
	const char *summary;   /* one line */
	const char *about;     /* paragraphs, broken at 72 */
	const char *examples;  /* lines of "COMMAND # what it does", or NULL */
	uint64_t options;      /* KI_HAS(...) | ... */
	int n_arguments_min;
	int n_arguments_max; /* -1: any */
	int is_wrapper;	     /* options end at the first argument */
	int usage_status;
	ki_verb_fn *body;
};

/* Ends with a verb whose name is NULL. */
extern const struct ki_verb ki_verbs[];

#define KI_GIVEN_MAX 64 /* options in one command */

struct ki_command {
	const struct ki_verb *verb;
	/* NULL: not given; "" for options without argument.  The last one. */
	const char *values[KI_N_OPTIONS];
	/* All that were given, in their order. */
	struct {
		enum ki_option option;
		const char *value;
	} given[KI_GIVEN_MAX];
	int n_given;
	char **arguments; /* ends with NULL */
	int n_arguments;
};

static inline int ki_given(const struct ki_command *command,
			   enum ki_option option)
{
	return command->values[option] != NULL;
}

/* NULL if there is none. */
const struct ki_verb *ki_verb_find(const char *name);

/*
 * Parse what stands behind the verb.  "neo:DIR" is the same as --store neo:DIR,
 * but for wrappers.  `arguments` (ends with NULL) is put in
 * order in place.  0, or -1 with a sentence in `message`.
 */
int ki_command_parse(struct ki_command *command, const struct ki_verb *verb,
		     char **arguments, char *message, size_t message_size);

/* The help of a verb, of the whole program if NULL. */
void ki_help(struct ki_bytes *out, const struct ki_verb *verb);

#endif /* KI_CLI_OPTIONS_H */
