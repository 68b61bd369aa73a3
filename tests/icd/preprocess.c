/* SPDX-License-Identifier: MIT */

/*
 * The preprocessor: splices, comments, conditionals, includes, macros with
 * and without parameters (# but not ##).  Its text is what gets compiled, and
 * what the driver's binaries hold, so a binary made with other macros or other
 * headers computes something else.
 *
 * __DATE__, __TIME__ and __TIMESTAMP__ become the number of seconds since
 * 1970, which is not C, but changes as theirs do.
 */

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "icd/icd.h"

#define DEPTH_MAX      32
#define MACRO_NAME_MAX 128
#define PARAMETERS_MAX 8
#define PATHS_MAX      32

struct macro {
	struct macro *next;
	char name[MACRO_NAME_MAX];
	int n_parameters; /* -1: used without parentheses */
	char parameters[PARAMETERS_MAX][MACRO_NAME_MAX];
	char *body;
};

struct preprocessor {
	struct macro *macros;
	char *paths[PATHS_MAX];
	unsigned n_paths;
	const struct icd_header *headers;
	unsigned n_headers;
	struct icd_text *out;
	struct icd_text *log;
	bool failed;
};

/* Macros that are being expanded: they don't expand again inside. */
struct active {
	const struct active *outer;
	const struct macro *macro;
};

static bool starts_name(int c)
{
	return isalpha(c) || c == '_';
}

static size_t name_length(const char *text)
{
	size_t n = 0;

	while (isalnum((unsigned char)text[n]) || text[n] == '_')
		n++;
	return n;
}

static const char *skip_blanks(const char *text)
{
	while (*text == ' ' || *text == '\t' || *text == '\r')
		text++;
	return text;
}

/* The length of a string, character or number, so that names inside stay. */
static size_t literal_length(const char *text)
{
	size_t n = 1;

	if (isdigit((unsigned char)*text)) {
		while (isalnum((unsigned char)text[n]) || text[n] == '.')
			n++;
		return n;
	}
	while (text[n] && text[n] != *text)
		n += text[n] == '\\' && text[n + 1] ? 2 : 1;
	return text[n] ? n + 1 : n;
}

static void complain(struct preprocessor *pp, const char *file, unsigned line,
		     const char *kind, const char *message)
{
	icd_text_printf(pp->log, "%s:%u: %s: %s\n", file, line, kind, message);
	if (!strcmp(kind, "error"))
		pp->failed = true;
}

/* ---- Macros ------------------------------------------------------------- */

static struct macro *find(struct preprocessor *pp, const char *name,
			  size_t length)
{
	struct macro *macro = pp->macros;

	while (macro && (strlen(macro->name) != length ||
			 memcmp(macro->name, name, length)))
		macro = macro->next;
	return macro;
}

static void undefine(struct preprocessor *pp, const char *name, size_t length)
{
	struct macro *gone = find(pp, name, length);
	struct macro **at = &pp->macros;

	if (!gone)
		return;
	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	free(gone->body);
	free(gone);
}

/* `text` begins with the name; `separator` stands before the body. */
static bool define(struct preprocessor *pp, const char *text, char separator)
{
	size_t length = name_length(text);
	struct macro *macro;

	if (!length || length >= MACRO_NAME_MAX || !starts_name(*text))
		return false;
	undefine(pp, text, length);
	macro = calloc(1, sizeof(*macro));
	if (!macro)
		return false;
	memcpy(macro->name, text, length);
	macro->n_parameters = -1;
	text += length;
	if (*text == '(') {
		macro->n_parameters = 0;
		text = skip_blanks(text + 1);
		while (*text && *text != ')' &&
		       macro->n_parameters < PARAMETERS_MAX) {
			length = name_length(text);
			if (!length || length >= MACRO_NAME_MAX)
				break;
			memcpy(macro->parameters[macro->n_parameters++], text,
			       length);
			text = skip_blanks(text + length);
			if (*text == ',')
				text = skip_blanks(text + 1);
		}
		if (*text++ != ')') {
			free(macro);
			return false;
		}
	}
	if (*text == separator || separator == ' ')
		macro->body = strdup(*text ? skip_blanks(text + 1) : "");
	else if (!*text)
		macro->body = strdup("1");
	if (!macro->body) {
		free(macro);
		return false;
	}
	macro->next = pp->macros;
	pp->macros = macro;
	return true;
}

static void expand(struct preprocessor *pp, const char *text,
		   const struct active *active, struct icd_text *out);

/* Arguments of a use of a macro; the text behind them, NULL if there are
   none or they don't end in this line. */
static const char *arguments(const char *text, char **args, int n)
{
	int depth = 0, i = 0;
	const char *start;

	text = skip_blanks(text);
	if (*text++ != '(')
		return NULL;
	start = text = skip_blanks(text);
	for (; *text; text++) {
		if (*text == '"' || *text == '\'') {
			text += literal_length(text) - 1;
			continue;
		}
		if (*text == '(')
			depth++;
		if ((*text == ',' && !depth) || (*text == ')' && !depth)) {
			if (i < n)
				args[i++] =
					strndup(start, (size_t)(text - start));
			if (*text == ')')
				return text + 1;
			start = skip_blanks(text + 1);
		}
		if (*text == ')')
			depth--;
	}
	return NULL;
}

static void substitute(struct preprocessor *pp, const struct macro *macro,
		       char **args, const struct active *active,
		       struct icd_text *out)
{
	const char *text = macro->body;

	while (*text) {
		bool quote = *text == '#';
		const char *name = quote ? skip_blanks(text + 1) : text;
		size_t length = starts_name((unsigned char)*name)
					? name_length(name)
					: 0;
		int i;

		for (i = 0; length && i < macro->n_parameters; i++)
			if (strlen(macro->parameters[i]) == length &&
			    !memcmp(macro->parameters[i], name, length))
				break;
		if (length && i < macro->n_parameters) {
			const char *arg = args[i] ? args[i] : "";
			if (quote)
				icd_text_printf(out, "\"%s\"", arg);
			else
				expand(pp, arg, active, out);
			text = name + length;
		} else if (length && !quote) {
			icd_text_add(out, text, length);
			text += length;
		} else {
			icd_text_add(out, text++, 1);
		}
	}
}

/* Expand one use; the text behind it, NULL if this is no use of a macro. */
static const char *expand_use(struct preprocessor *pp, const char *text,
			      const struct active *active, struct icd_text *out)
{
	size_t length = name_length(text);
	struct macro *macro = find(pp, text, length);
	struct active inner = { active, macro };
	char *args[PARAMETERS_MAX] = { 0 };
	struct icd_text replaced = { 0 };

	for (const struct active *a = active; macro && a; a = a->outer)
		if (a->macro == macro)
			macro = NULL;
	if (!macro)
		return NULL;
	text += length;
	if (macro->n_parameters >= 0) {
		text = arguments(text, args, macro->n_parameters);
		if (text)
			substitute(pp, macro, args, active, &replaced);
	} else {
		icd_text_puts(&replaced, macro->body);
	}
	for (int i = 0; i < PARAMETERS_MAX; i++)
		free(args[i]);
	if (text && replaced.data)
		expand(pp, replaced.data, &inner, out);
	out->failed |= replaced.failed;
	free(replaced.data);
	return text;
}

static void expand(struct preprocessor *pp, const char *text,
		   const struct active *active, struct icd_text *out)
{
	while (*text) {
		const char *behind = NULL;
		size_t length = 1;

		if (starts_name((unsigned char)*text)) {
			length = name_length(text);
			behind = expand_use(pp, text, active, out);
		} else if (*text == '"' || *text == '\'' ||
			   isdigit((unsigned char)*text)) {
			length = literal_length(text);
		}
		if (!behind) {
			icd_text_add(out, text, length);
			behind = text + length;
		}
		text = behind;
	}
}

/* ---- Files -------------------------------------------------------------- */

static char *read_file(const char *path)
{
	struct icd_text text = { 0 };
	char part[4096];
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	icd_text_puts(&text, "");
	while ((n = read(fd, part, sizeof(part))) > 0)
		icd_text_add(&text, part, (size_t)n);
	close(fd);
	if (n == 0 && !text.failed)
		return text.data;
	free(text.data);
	return NULL;
}

/* Splices go, comments become a blank or the lines they span. */
static char *translate(const char *text)
{
	char *out = malloc(strlen(text) + 1), *to = out;

	while (out && *text) {
		if (text[0] == '\\' && text[1] == '\n') {
			text += 2;
		} else if (text[0] == '/' && text[1] == '/') {
			while (*text && *text != '\n')
				text++;
		} else if (text[0] == '/' && text[1] == '*') {
			*to++ = ' ';
			text += 2;
			while (*text && (text[0] != '*' || text[1] != '/'))
				if (*text++ == '\n')
					*to++ = '\n';
			text += *text ? 2 : 0;
		} else if (*text == '"') {
			size_t n = literal_length(text);
			memcpy(to, text, n);
			to += n;
			text += n;
		} else {
			*to++ = *text++;
		}
	}
	if (out)
		*to = '\0';
	return out;
}

static void run(struct preprocessor *pp, const char *file, const char *text,
		unsigned depth);

static bool include_path(struct preprocessor *pp, const char *directory,
			 size_t length, const char *name, unsigned depth)
{
	char path[4096];
	char *text;

	if (*name == '/' || !length)
		snprintf(path, sizeof(path), "%s", name);
	else
		snprintf(path, sizeof(path), "%.*s/%s", (int)length, directory,
			 name);
	text = read_file(path);
	if (!text)
		return false;
	run(pp, path, text, depth + 1);
	free(text);
	return true;
}

static bool include(struct preprocessor *pp, const char *file, const char *name,
		    bool quoted, unsigned depth)
{
	const char *slash = strrchr(file, '/');

	for (unsigned i = 0; i < pp->n_headers; i++) {
		if (strcmp(pp->headers[i].name, name))
			continue;
		run(pp, name, pp->headers[i].text, depth + 1);
		return true;
	}
	if (quoted && slash &&
	    include_path(pp, file, (size_t)(slash - file), name, depth))
		return true;
	for (unsigned i = 0; i < pp->n_paths; i++)
		if (include_path(pp, pp->paths[i], strlen(pp->paths[i]), name,
				 depth))
			return true;
	return include_path(pp, "", 0, name, depth);
}

static void include_line(struct preprocessor *pp, const char *file,
			 unsigned number, const char *rest, unsigned depth)
{
	struct icd_text text = { 0 };
	const char *end;
	char *name;

	if (*rest == '"' || *rest == '<')
		icd_text_puts(&text, rest);
	else
		expand(pp, rest, NULL, &text);
	rest = skip_blanks(text.data ? text.data : "");
	end = *rest == '"' || *rest == '<'
		      ? strchr(rest + 1, *rest == '<' ? '>' : '"')
		      : NULL;
	name = end ? strndup(rest + 1, (size_t)(end - rest - 1)) : NULL;
	if (!name)
		complain(pp, file, number, "error", "bad #include");
	else if (depth >= DEPTH_MAX)
		complain(pp, file, number, "error", "includes nest too deep");
	else if (!include(pp, file, name, *rest == '"', depth))
		complain(pp, file, number, "error", "include file not found");
	free(name);
	free(text.data);
}

/* ---- Conditionals ------------------------------------------------------- */

/* Does the expression of #if hold?  Names that are no macros are 0. */
static bool holds(struct preprocessor *pp, const char *text)
{
	struct icd_text known = { 0 }, plain = { 0 };
	long long value = 0;

	while (*text) {
		size_t n = starts_name((unsigned char)*text) ? name_length(text)
							     : 0;
		if (n == 7 && !memcmp(text, "defined", 7)) {
			text = skip_blanks(text + n);
			bool open = *text == '(';
			text = skip_blanks(text + open);
			n = name_length(text);
			icd_text_puts(&known, find(pp, text, n) ? "1" : "0");
			text = skip_blanks(text + n);
			text += open && *text == ')';
		} else {
			n = n ? n : 1;
			icd_text_add(&known, text, n);
			text += n;
		}
	}
	expand(pp, known.data ? known.data : "", NULL, &plain);
	for (char *at = plain.data; at && *at;) {
		size_t n = isdigit((unsigned char)*at) ? literal_length(at)
						       : name_length(at);
		if (n && starts_name((unsigned char)*at)) {
			memset(at, ' ', n);
			*at = '0';
		}
		at += n ? n : 1;
	}
	bool good = plain.data && icd_constant(plain.data, &value);
	free(known.data);
	free(plain.data);
	return good && value;
}

struct conditional {
	bool outer; /* are the lines around it taken? */
	bool taken; /* is this branch? */
	bool done;  /* was one of its branches? */
};

/* True if the line was a conditional; updates the stack. */
static bool conditional_line(struct preprocessor *pp, struct conditional *stack,
			     unsigned *depth, const char *word, size_t length,
			     const char *rest)
{
	struct conditional *top = &stack[*depth];
	bool condition;

#define IS(text) (length == strlen(text) && !memcmp(word, text, length))
	if (IS("if") || IS("ifdef") || IS("ifndef")) {
		if (*depth + 1 >= DEPTH_MAX) {
			complain(pp, "", 0, "error", "#if nests too deep");
			return true;
		}
		condition = find(pp, rest, name_length(rest)) != NULL;
		if (IS("if"))
			condition = top->taken && holds(pp, rest);
		if (IS("ifndef"))
			condition = !condition;
		top[1].outer = top->taken;
		top[1].taken = top->taken && condition;
		top[1].done = top[1].taken;
		++*depth;
	} else if (IS("else") || IS("elif")) {
		condition = IS("else") ||
			    (top->outer && !top->done && holds(pp, rest));
		top->taken = *depth && top->outer && !top->done && condition;
		top->done |= top->taken;
	} else if (IS("endif")) {
		*depth -= *depth ? 1 : 0;
	} else {
		return false;
	}
	return true;
}

static void directive(struct preprocessor *pp, const char *file,
		      unsigned number, const char *word, size_t length,
		      const char *rest, unsigned depth)
{
	if (IS("include"))
		include_line(pp, file, number, rest, depth);
	else if (IS("define") && !define(pp, rest, ' '))
		complain(pp, file, number, "error", "bad #define");
	else if (IS("undef"))
		undefine(pp, rest, name_length(rest));
	else if (IS("error"))
		complain(pp, file, number, "error", rest);
	else if (IS("warning"))
		complain(pp, file, number, "warning", rest);
#undef IS
}

static void run(struct preprocessor *pp, const char *file, const char *text,
		unsigned depth)
{
	struct conditional stack[DEPTH_MAX] = { { true, true, true } };
	char *plain = translate(text), *save = plain, *line;
	unsigned nested = 0, number = 0;

	while (plain && (line = strsep(&save, "\n"))) {
		const char *word = skip_blanks(line);
		number++;
		if (*word != '#') {
			if (stack[nested].taken && *word) {
				expand(pp, word, NULL, pp->out);
				icd_text_puts(pp->out, "\n");
			}
			continue;
		}
		word = skip_blanks(word + 1);
		size_t length = name_length(word);
		const char *rest = skip_blanks(word + length);
		if (!conditional_line(pp, stack, &nested, word, length, rest) &&
		    stack[nested].taken)
			directive(pp, file, number, word, length, rest, depth);
	}
	if (nested)
		complain(pp, file, number, "error", "#if without #endif");
	free(plain);
}

/* ---- Options ------------------------------------------------------------ */

/* The next word of the options, quotes taken off; NULL at the end. */
static char *next_word(const char **options)
{
	const char *text = *options;
	struct icd_text word = { 0 };
	char quote = 0;

	while (isspace((unsigned char)*text))
		text++;
	if (!*text)
		return NULL;
	icd_text_puts(&word, "");
	for (; *text && (quote || !isspace((unsigned char)*text)); text++) {
		if (*text == quote)
			quote = 0;
		else if (!quote && (*text == '"' || *text == '\''))
			quote = *text;
		else if (*text == '\\' && text[1])
			icd_text_add(&word, ++text, 1);
		else
			icd_text_add(&word, text, 1);
	}
	*options = text;
	return word.data;
}

static bool known_option(const char *word)
{
	return !strncmp(word, "-cl-", 4) || !strncmp(word, "-W", 2) ||
	       !strncmp(word, "-O", 2) || !strcmp(word, "-w") ||
	       !strcmp(word, "-g") || !strcmp(word, "-create-library") ||
	       !strcmp(word, "-enable-link-options");
}

static bool take_option(struct preprocessor *pp, const char *word,
			const char **options)
{
	char *next = NULL;
	const char *value = word + 2;
	bool good = true;

	if (strncmp(word, "-D", 2) && strncmp(word, "-I", 2))
		return known_option(word);
	if (!*value)
		value = next = next_word(options);
	if (!value)
		return false;
	if (word[1] == 'D')
		good = define(pp, value, '=');
	else if (pp->n_paths < PATHS_MAX)
		good = (pp->paths[pp->n_paths++] = strdup(value)) != NULL;
	free(next);
	return good;
}

static bool take_options(struct preprocessor *pp, const char *options)
{
	bool good = true;
	char *word;

	while (good && (word = next_word(&options))) {
		good = take_option(pp, word, &options);
		free(word);
	}
	return good;
}

static void define_times(struct preprocessor *pp)
{
	static const char *const names[] = { "__DATE__", "__TIME__",
					     "__TIMESTAMP__" };
	char text[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(text, sizeof(text), "%s=%lld", names[i],
			 (long long)time(NULL));
		define(pp, text, '=');
	}
	define(pp, "__OPENCL_VERSION__=300", '=');
}

cl_int icd_preprocess(const char *source, const char *options,
		      const struct icd_header *headers, unsigned n_headers,
		      struct icd_text *out, struct icd_text *log)
{
	struct preprocessor pp = {
		.headers = headers,
		.n_headers = n_headers,
		.out = out,
		.log = log,
	};
	cl_int status = CL_SUCCESS;

	icd_text_puts(out, "");
	define_times(&pp);
	if (!take_options(&pp, options))
		status = CL_INVALID_BUILD_OPTIONS;
	else
		run(&pp, "program", source, 0);
	if (!status && (pp.failed || out->failed))
		status = CL_BUILD_PROGRAM_FAILURE;
	while (pp.macros)
		undefine(&pp, pp.macros->name, strlen(pp.macros->name));
	for (unsigned i = 0; i < pp.n_paths; i++)
		free(pp.paths[i]);
	return status;
}
