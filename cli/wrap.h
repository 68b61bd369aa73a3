/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_WRAP_H
#define KI_CLI_WRAP_H

/*
 * What the parts of `kiln wrap` have in common:
 *
 *	wrap.c		the verb: from look-up to replay, or out of the way
 *	wrap_tables.c	the compilers, and what their options mean
 *	wrap_rules.c	a command line, understood by them
 *	wrap_files.c	what a run depended on, and the state that it is in
 *	wrap_scan.c	the places of includes, found by looking or as listed
 *	wrap_driver.c	which programs a compiler starts, and where these look
 *	wrap_run.c	one run of the compiler, and what came of it
 *	wrap_told.c	what loader and preprocessor told of it
 *	wrap_outputs.c	files that it wrote, kept and put back
 *	wrap_entry.c	that as bytes and back, docs/formats/wrap.md
 *
 * Strings are borrowed unless said otherwise; one thread.
 */

#include <kiln/kiln.h>

#include "base/bytes.h"
#include "sys/sys.h"

#define KI_WRAP_INPUTS_MAX  64
#define KI_WRAP_FOLDERS_MAX 64
#define KI_WRAP_OUTPUTS_MAX 8
#define KI_WRAP_PATHS_MAX   16384
#define KI_WRAP_SETS_MAX    8
#define KI_WRAP_BYTES_MAX   ((size_t)256 << 20) /* of one output, or stream */
#define KI_WRAP_INPUT_MAX   ((size_t)64 << 20)

/* ---- Arguments ---------------------------------------------------------- */

struct ki_wrap_rule {
	const char *name; /* the last part of the compiler's path */
	const struct ki_wrap_option *options;
	/* What it reads; "PREFIX*" is all that begin so.  Ends with NULL. */
	const char *const *variables;
	/* Arguments for a list of includes, "%" being its file; or NULL. */
	const char *const *dependencies;
	/* Files beside an input that it reads unasked: "x.cl" and "_s.txt" is
	   "x_s.txt".  Ends with NULL. */
	const char *const *companions;
	/* Endings of what it writes as BASE_WORD.ENDING; NULL: its outputs
	   are named. */
	const char *const *endings;
	const char *subcommand; /* may stand first; or NULL */
	/* Of a driver: patterns of the names of programs that it may start; ends
	   with NULL.  It says by --dryrun which these are. */
	const char *const *programs;
	/* Variables that make nothing of this understood, and two with more
	   arguments; each may be NULL. */
	const char *const *refused;
	const char *flags_before, *flags_after;
	/* It takes one source that ends so, and makes one output with the ending
	   that an option has for its name; or NULL. */
	const char *source_ending;
	int has_time_macros; /* __DATE__ means something */
};

struct ki_wrap_command {
	const struct ki_wrap_rule *rule;
	char *const *argv;
	char compiler[KI_PATH_MAX];
	const char *inputs[KI_WRAP_INPUTS_MAX];
	size_t n_inputs;
	const char *folders[KI_WRAP_FOLDERS_MAX]; /* of includes */
	size_t n_folders;
	const char *outputs[KI_WRAP_OUTPUTS_MAX];
	size_t n_outputs;
	const char *directory; /* of outputs with endings, and their base */
	char base[256];
	char ending[16];		 /* of a source_ending's output */
	char *words[KI_WRAP_INPUTS_MAX]; /* own copies */
	size_t n_words;
	int is_binary, is_printing, lists_includes, is_named;
};

/* 0; -1 with `*out_why` in words if this is nothing to be cached.  fini in any
   case. */
int ki_wrap_parse(struct ki_wrap_command *command, char *const *argv,
		  const char **out_why);
void ki_wrap_command_fini(struct ki_wrap_command *command);

/* Whether it could be executed, and would say what it loads. */
int ki_wrap_is_program(const char *path);

/* ---- Files -------------------------------------------------------------- */

struct ki_wrap_path {
	char *path;
	int is_library; /* known by its build-id */
};

/* Paths that a result depends on, each once; what goes wrong stays. */
struct ki_wrap_paths {
	struct ki_wrap_path *paths;
	size_t n;
	size_t *slots; /* by hash: index + 1, or 0 */
	size_t n_slots;
	int failed; /* 0 or -errno */
};

void ki_wrap_paths_add(struct ki_wrap_paths *paths, const char *path,
		       size_t size, int is_library);
void ki_wrap_paths_fini(struct ki_wrap_paths *paths);

/* Add the state of a file to the key: not there, or what is in it.  Fails where
   that cannot be known. */
int ki_wrap_add_state(struct kiln_key *key, const char *path, int is_library);

/* Add the states of all; what is not there makes one field. */
int ki_wrap_add_states(struct kiln_key *key, const struct ki_wrap_paths *paths);

/* Whether it is a program that the C library's loader starts, and tells of. */
int ki_wrap_has_loader(const char *path);

/* Whether one of them may have changed since then (realtime_ns). */
int ki_wrap_is_recent(const struct ki_wrap_paths *paths, int64_t begun_ns);

/* Add all that the inputs may include.  Where that cannot be known, the reason is
   returned. */
enum kiln_counter ki_wrap_scan(const struct ki_wrap_command *command,
			       struct ki_wrap_paths *paths, int *out_is_known);

/* Add what a compiler said in make's language, and where else it was looked for. */
void ki_wrap_add_listed(const struct ki_wrap_command *command, const char *text,
			struct ki_wrap_paths *paths);

/* ---- Drivers ------------------------------------------------------------ */

/* What a compiler says it would start, before it does. */
struct ki_wrap_driver {
	char *search; /* where it looks for programs: its PATH */
	char host[KI_PATH_MAX];
	struct ki_wrap_paths files;   /* it has for arguments, and their like */
	struct ki_wrap_paths folders; /* of includes, there or not */
	size_t n_lists;		      /* of includes, that come of a run */
};

/* 0; -1: what it would do is not known.  fini in any case. */
int ki_wrap_driver_ask(const struct ki_wrap_command *command,
		       struct ki_wrap_driver *out_driver);
void ki_wrap_driver_fini(struct ki_wrap_driver *driver);

/* The parts of that, each from a text: the commands that it would give, and where
   their preprocessor looks. */
int ki_wrap_driver_read_plan(const struct ki_wrap_command *command,
			     const char *text, struct ki_wrap_driver *driver);
void ki_wrap_driver_read_folders(const char *text,
				 struct ki_wrap_driver *driver);

/* Add a program that it starts by this name, and where that is looked for before.
   -1: it is none that may be. */
int ki_wrap_driver_add_program(const struct ki_wrap_command *command,
			       const struct ki_wrap_driver *driver,
			       const char *name, struct ki_wrap_paths *paths);

/* Add what its preprocessor lists, and all other places of that. */
enum kiln_counter ki_wrap_add_places(const struct ki_wrap_command *command,
				     const struct ki_wrap_driver *driver,
				     const char *text,
				     struct ki_wrap_paths *paths,
				     int *out_is_known);

/* ---- Runs --------------------------------------------------------------- */

struct ki_wrap_output {
	char *path;
	uint32_t mode;
	const void *data;
	size_t size;
};

/* What a run leaves. */
struct ki_wrap_result {
	int wait_status;
	struct ki_bytes streams[2]; /* standard output, error */
	struct ki_wrap_output outputs[KI_WRAP_OUTPUTS_MAX];
	size_t n_outputs;
	int owns_data;
};

void ki_wrap_result_fini(struct ki_wrap_result *result);

/* Whether standard output and error are one file, the first then having all.
   -1: one of them is none. */
int ki_wrap_is_merged(void);

/* The run was, and its streams are in the result. */
#define KI_WRAP_RAN    0
#define KI_WRAP_NO_RUN 1

/*
 * Run the compiler.  What it writes to its outputs is there then, in place.
 * `*out_why` is NULL if the result may be kept: then it has the outputs, too, and
 * `paths` what it depended on.
 */
int ki_wrap_run(const struct ki_wrap_command *command,
		struct ki_wrap_result *result, struct ki_wrap_paths *paths,
		enum kiln_counter *out_counter, const char **out_why);

/* Say what the compiler said. */
void ki_wrap_say(const struct ki_wrap_result *result);

/* Whether a failure would come again, by what the compiler said. */
int ki_wrap_is_lasting(const char *said);

/* What is told of a run, in a folder. */
struct ki_wrap_told {
	char folder[KI_PATH_MAX];
	int lock;			     /* on it */
	char trace[KI_PATH_MAX + 32];	     /* variables, as NAME=VALUE */
	char dependencies[KI_PATH_MAX + 32]; /* for a driver's preprocessor */
	const char *list;		     /* of includes: a file for it */
};
/* 0, and to be ended; or -1. */
int ki_wrap_told_begin(struct ki_wrap_told *told);
void ki_wrap_told_end(struct ki_wrap_told *told);

/* Add the libraries, and the programs of a driver (else NULL).  NULL, or why they are
   not known. */
const char *ki_wrap_told_programs(const struct ki_wrap_told *told,
				  const struct ki_wrap_command *command,
				  const struct ki_wrap_driver *driver,
				  struct ki_wrap_paths *paths);

/* The list of includes from malloc(); NULL: there is none. */
char *ki_wrap_told_list(const struct ki_wrap_told *told);

/* ---- Outputs ------------------------------------------------------------ */

/* Whether every output could be replaced by renaming. */
int ki_wrap_is_replaceable(const struct ki_wrap_command *command);

/* Whether a file of this name is what the command writes. */
int ki_wrap_is_output(const struct ki_wrap_command *command, const char *path);

/* What may be outputs of the command, as they are now; free() it.  NULL: out of
   memory. */
struct ki_wrap_candidates *ki_wrap_look(const struct ki_wrap_command *command);

/* Add what the run wrote since then to its result.  NULL, or why that cannot be
   kept. */
const char *ki_wrap_keep_outputs(const struct ki_wrap_command *command,
				 const struct ki_wrap_candidates *before,
				 struct ki_wrap_result *result);

/* Write the outputs.  0, or -errno: some may be there, none in part. */
int ki_wrap_replay(const struct ki_wrap_result *result);

/* ---- Entries ------------------------------------------------------------ */

/* 0 or -errno. */
int ki_wrap_encode(const struct ki_wrap_result *result, struct ki_bytes *out);
/* 0, or -EINVAL for bytes that are none of this command's.  The result borrows
   from them but for names. */
int ki_wrap_decode(const struct ki_wrap_command *command, const void *data,
		   size_t size, struct ki_wrap_result *out_result);

/* Lists of paths, the last that were found first. */
struct ki_wrap_sets {
	struct ki_wrap_paths sets[KI_WRAP_SETS_MAX];
	size_t n;
};
int ki_wrap_sets_encode(const struct ki_wrap_sets *sets, struct ki_bytes *out);
int ki_wrap_sets_decode(const void *data, size_t size,
			struct ki_wrap_sets *out_sets);
void ki_wrap_sets_fini(struct ki_wrap_sets *sets);

#endif /* KI_CLI_WRAP_H */
