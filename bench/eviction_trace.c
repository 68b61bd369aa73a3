/* SPDX-License-Identifier: MIT */

/*
 * bench/traces/README.md has the format:
 *
 *	# words
 *	entries N
 *	BYTES MICROSECONDS	N times
 *	lookups N
 *	0 1 2 0 3		N numbers of entries, a line for each process
 */

#include "eviction_trace.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define SUFFIX	 ".trace"
#define MANY_MAX ((size_t)1 << 24)

static void *zeros(size_t n, size_t size)
{
	void *data = calloc(n, size);

	if (!data)
		bench_fail("out of memory");
	return data;
}

static void skip_comments(FILE *file)
{
	int c;

	while ((c = fgetc(file)) == '#')
		while (c != '\n' && c != EOF)
			c = fgetc(file);
	ungetc(c, file);
}

/* The entries, then the look-ups; 0, or -1 if it is no trace. */
static int read_trace(FILE *file, struct eviction_trace *trace)
{
	unsigned long bytes, build_us;

	skip_comments(file);
	if (fscanf(file, "entries %zu", &trace->n_entries) != 1 ||
	    !trace->n_entries || trace->n_entries > MANY_MAX)
		return -1;
	trace->entries = zeros(trace->n_entries, sizeof(*trace->entries));
	for (size_t i = 0; i < trace->n_entries; i++) {
		if (fscanf(file, "%lu %lu", &bytes, &build_us) != 2 || !bytes)
			return -1;
		trace->entries[i].bytes = bytes;
		trace->entries[i].build_s = (double)build_us / 1e6;
		trace->bytes += bytes;
	}
	if (fscanf(file, " lookups %zu", &trace->n_lookups) != 1 ||
	    trace->n_lookups > MANY_MAX)
		return -1;
	trace->lookups = zeros(trace->n_lookups + 1, sizeof(*trace->lookups));
	for (size_t i = 0; i < trace->n_lookups; i++)
		if (fscanf(file, "%u", &trace->lookups[i]) != 1 ||
		    trace->lookups[i] >= trace->n_entries)
			return -1;
	return 0;
}

static void open_trace(const char *folder, const char *name,
		       struct eviction_trace *trace)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "r");
	if (!file)
		bench_fail("%s: %s", path, strerror(errno));
	if (read_trace(file, trace))
		bench_fail("%s: this is no trace", path);
	fclose(file);
	trace->name = strndup(name, strlen(name) - strlen(SUFFIX));
	if (!trace->name)
		bench_fail("out of memory");
}

static int is_trace(const struct dirent *entry)
{
	size_t size = strlen(entry->d_name);

	return size > strlen(SUFFIX) &&
	       !strcmp(entry->d_name + size - strlen(SUFFIX), SUFFIX);
}

struct eviction_trace *eviction_traces_read(const char *folder, size_t *out_n)
{
	struct eviction_trace *traces;
	struct dirent **names;
	int n = scandir(folder, &names, is_trace, alphasort);

	if (n <= 0)
		bench_fail("%s: there are no traces", folder);
	traces = zeros((size_t)n, sizeof(*traces));
	for (int i = 0; i < n; i++) {
		open_trace(folder, names[i]->d_name, &traces[i]);
		free(names[i]);
	}
	free(names);
	*out_n = (size_t)n;
	return traces;
}

void eviction_traces_free(struct eviction_trace *traces, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(traces[i].name);
		free(traces[i].entries);
		free(traces[i].lookups);
	}
	free(traces);
}
