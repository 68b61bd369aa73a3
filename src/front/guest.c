/* SPDX-License-Identifier: MIT */

/*
 * The kiln inside a program that did not ask for one.  It is opened at the
 * first use and never closed: at exit the library counts what it had not yet
 * (core/exit.c), and that is all.  Whatever is wrong costs the program its cache,
 * and the log one line.
 */

#include "front/guest.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/remote.h>

#include "base/bytes.h"

#define LINE_BYTES_MAX 2048

static struct ki_mutex opening = KI_MUTEX_INIT(FRONT);
static int tried;	      /* under `opening` */
static struct ki_guest guest; /* fixed once `opened` is set */
static _Atomic(const struct ki_guest *) opened;
static _Atomic int is_off;
static int is_opening, n_complaints; /* under `opening` */

void ki_guest_hold(void)
{
	pthread_mutex_lock(&opening.mutex);
}

void ki_guest_let_go(void)
{
	pthread_mutex_unlock(&opening.mutex);
}

/* ---- The log ------------------------------------------------------------- */

/* One line at the end of the file; no descriptor stays open. */
static void write_line(const char *path, const char *words)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_piece piece;
	char line[LINE_BYTES_MAX];
	int fd, n, i;

	n = snprintf(line, sizeof(line), "kiln[%d]: %s\n", ki_process_id(),
		     words);
	if (n < 0)
		return;
	if ((size_t)n >= sizeof(line))
		n = sizeof(line) - 1;
	/* What a setting or a path repeats stays in its line, and harmless. */
	for (i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[n - 1] = '\n';
	fd = sys->open(sys, path,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_APPEND, 0600);
	if (fd < 0)
		return;
	piece = (struct ki_piece){ line, (size_t)n };
	(void)ki_pwritev_all(sys, fd, &piece, 1, 0);
	(void)sys->close(sys, fd);
}

/* The library's own traces say less than the front's; of what it complains
   about while it opens, the first line has the reason. */
static void log_words(void *arg, enum kiln_log_level level, const char *words)
{
	const char *path = kiln_config_value(arg, KILN_SET_LOG);

	if (!path || !*path || level == KILN_LOG_TRACE)
		return;
	if (is_opening && level <= KILN_LOG_WARNING && n_complaints++)
		return;
	write_line(path, words);
}

void ki_guest_log(const struct ki_guest *to, const char *format, ...)
{
	char words[LINE_BYTES_MAX];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(words, sizeof(words), format, args);
	va_end(args);
	log_words(to->config, KILN_LOG_NOTE, words);
}

/* What an eviction weighs, for who records a session of look-ups. */
static void say_entry(const struct kiln_blob *value,
		      const struct kiln_blob *metadata, char *out, size_t size)
{
	uint64_t build_ns = 0;

	(void)kiln_metadata_find_u64(kiln_blob_data(metadata),
				     kiln_blob_size(metadata),
				     KILN_META_BUILD_TIME, &build_ns);
	(void)snprintf(out, size, ", %zu bytes, built in %llu us",
		       kiln_blob_size(value) + kiln_blob_size(metadata),
		       (unsigned long long)build_ns / 1000);
}

void ki_guest_trace(const struct ki_guest *to, const char *front,
		    const struct kiln_key *key, const char *what,
		    uint64_t began_ns, const struct kiln_blob *value,
		    const struct kiln_blob *metadata)
{
	const uint64_t now_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	char hex[2 * KILN_DIGEST_BYTES + 1] = "-", entry[64] = "";

	if (!to->trace)
		return;
	if (key)
		ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, hex);
	if (value && metadata)
		say_entry(value, metadata, entry, sizeof(entry));
	ki_guest_log(to, "%s: %s %s %llu us%s", front, hex, what,
		     (unsigned long long)(now_ns - began_ns) / 1000, entry);
}

/* ---- Opening ------------------------------------------------------------- */

static int is_set(enum kiln_setting setting)
{
	const char *origin = kiln_config_origin(guest.config, setting);

	return strcmp(origin, "default") && strcmp(origin, "unset");
}

/* With a wrong setting caching is off, but `kiln stats` should tell why a
   program had no hits: counted in the store, if there is one already and
   nobody may have meant it to be left alone. */
static void count_wrong_setting(void)
{
	const char *directory = kiln_config_directory(guest.config, NULL);
	char index[KI_PATH_MAX];
	struct kiln_options options;
	struct ki_file_info info;
	struct kiln *kiln;

	if (!directory || is_set(KILN_SET_READONLY) ||
	    is_set(KILN_SET_DISABLE) || is_set(KILN_SET_STORE) ||
	    ki_path_join(index, directory, "kiln.idx") ||
	    ki_sys_posix.lstat(&ki_sys_posix, index, &info))
		return;
	kiln_options_init(&options);
	kiln_config_options(guest.config, &options);
	options.flags = KILN_OPEN_GUEST;
	if (kiln_open(&options, &kiln))
		return;
	kiln_count(kiln, KILN_COUNT_MISS_UNAVAILABLE, 1);
	kiln_close(kiln);
}

static int has_pack(const struct kiln *kiln)
{
	enum kiln_status status;

	for (size_t i = 0; kiln_pack_given(kiln, i, &status); i++)
		if (status == KILN_OK)
			return 1;
	return 0;
}

/* A store that is only busy will be there. */
static int has_store(const struct kiln *kiln)
{
	enum kiln_status status = kiln_store_status(kiln);

	return status == KILN_OK || status == KILN_E_TIMEOUT;
}

/* One whose helper does not run has nothing. */
static int has_remote(const struct kiln_options *options)
{
	return options->remote && kiln_remote_is_there(options);
}

/* Without store, packs and remote a guest has nothing to look into: keys would be
   taken for nothing. */
static int is_hopeless(const struct kiln *kiln,
		       const struct kiln_options *options)
{
	return !has_store(kiln) && !has_pack(kiln) && !has_remote(options);
}

/* Of a store that is named the library has told. */
static void tell_no_directory(const char *what)
{
	const char *why;

	if (!kiln_config_directory(guest.config, &why))
		ki_guest_log(&guest, "%s, directory: %s", what, why);
}

static int open_kiln(ki_guest_ready_fn *ready)
{
	struct kiln_options options;
	char message[1024] = "";
	const char *name_space;
	enum kiln_status status;
	size_t i;

	if (kiln_config_load(&guest.config, message, sizeof(message))) {
		if (guest.config) {
			ki_guest_log(&guest, "%s; caching is off", message);
			count_wrong_setting();
		}
		return -1;
	}
	if (kiln_config_number(guest.config, KILN_SET_DISABLE))
		return -1;
	for (i = 0; kiln_config_warning(guest.config, i); i++)
		ki_guest_log(&guest, "%s",
			     kiln_config_warning(guest.config, i));

	kiln_options_init(&options);
	options.flags = KILN_OPEN_GUEST;
	kiln_config_options(guest.config, &options);
	options.log = log_words;
	options.log_arg = guest.config;
	is_opening = 1;
	status = kiln_open(&options, &guest.kiln);
	is_opening = 0;
	if (status)
		return -1;
	if (is_hopeless(guest.kiln, &options)) {
		tell_no_directory("caching is off");
		return -1;
	}
	tell_no_directory("there is no store");
	/* What jobs make goes into the store. */
	if (has_store(guest.kiln) &&
	    !kiln_config_number(guest.config, KILN_SET_READONLY))
		guest.spool = kiln_config_spool(guest.config);
	name_space = kiln_config_value(guest.config, KILN_SET_NAMESPACE);
	guest.name_space = name_space ? name_space : "";
	guest.trace = kiln_config_number(guest.config, KILN_SET_TRACE) != 0;
	return ready ? ready(&guest) : 0;
}

/* What a failed opening leaves. */
static void drop(void)
{
	kiln_close(guest.kiln);
	kiln_config_free(guest.config);
	memset(&guest, 0, sizeof(guest));
	atomic_store(&is_off, 1);
}

const struct ki_guest *ki_guest(ki_guest_ready_fn *ready)
{
	const struct ki_guest *found =
		atomic_load_explicit(&opened, memory_order_acquire);

	if (found || atomic_load(&is_off))
		return found;
	ki_mutex_lock(&opening);
	if (!tried) {
		tried = 1;
		if (open_kiln(ready))
			drop();
		else
			atomic_store_explicit(&opened, &guest,
					      memory_order_release);
	}
	found = atomic_load_explicit(&opened, memory_order_acquire);
	ki_mutex_unlock(&opening);
	return found;
}
