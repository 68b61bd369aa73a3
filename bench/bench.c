/* SPDX-License-Identifier: MIT */

#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* How a row begins in the file: one row, one line, so that --append can find
   them again without reading JSON. */
#define ROW_START "    {\"name\": "

void bench_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("bench: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static void *must(void *pointer)
{
	if (!pointer)
		bench_fail("out of memory");
	return pointer;
}

void bench_begin(struct bench *bench, int argc, char **argv, const char *title)
{
	*bench = (struct bench){ .title = title };
	bench->args = must(calloc((size_t)argc + 1, sizeof(*bench->args)));
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json")) {
			if (i + 1 == argc) {
				fprintf(stderr, "%s: --json needs a FILE\n",
					argv[0]);
				exit(2);
			}
			bench->json = argv[++i];
		} else if (!strcmp(argv[i], "--append")) {
			bench->append = 1;
		} else if (!strcmp(argv[i], "--quick")) {
			bench->quick = 1;
		} else {
			bench->args[bench->n_args++] = argv[i];
		}
	}
}

int bench_wants(const struct bench *bench, const char *group)
{
	int is_wanted = !bench->n_args;

	for (int i = 0; i < bench->n_args; i++)
		is_wanted |=
			!strncmp(group, bench->args[i], strlen(bench->args[i]));
	if (is_wanted)
		fprintf(stderr, "%s: %s\n", bench->title, group);
	return is_wanted;
}

static struct bench_row *add_row(struct bench *bench, const char *name,
				 double value, const char *unit)
{
	struct bench_row *row;

	bench->rows = must(realloc(bench->rows,
				   (bench->n_rows + 1) * sizeof(*bench->rows)));
	row = &bench->rows[bench->n_rows++];
	*row = (struct bench_row){ .name = must(strdup(name)),
				   .unit = must(strdup(unit)),
				   .value = value };
	return row;
}

void bench_row(struct bench *bench, const char *name, double value,
	       const char *unit)
{
	add_row(bench, name, value, unit);
}

void bench_row_bar(struct bench *bench, const char *name, double value,
		   const char *unit, double bar, enum bench_better better)
{
	struct bench_row *row = add_row(bench, name, value, unit);

	row->has_bar = 1;
	row->bar = bar;
	row->better = better;
}

static int row_ok(const struct bench_row *row)
{
	return row->better == BENCH_LOWER ? row->value <= row->bar
					  : row->value >= row->bar;
}

/* ---- The table ------------------------------------------------------------- */

static void print_table(const struct bench *bench)
{
	int width = (int)strlen(bench->title);
	size_t i;

	for (i = 0; i < bench->n_rows; i++)
		if ((int)strlen(bench->rows[i].name) > width)
			width = (int)strlen(bench->rows[i].name);
	printf("%-*s  %12s %-6s  %s\n", width, bench->title, "value", "",
	       "bar");
	for (i = 0; i < bench->n_rows; i++) {
		const struct bench_row *row = &bench->rows[i];

		printf("%-*s  %12.4g %-6s", width, row->name, row->value,
		       row->unit);
		if (row->has_bar)
			printf("  %s %.4g %s",
			       row->better == BENCH_LOWER ? "<=" : ">=",
			       row->bar, row_ok(row) ? "ok" : "MISSED");
		putchar('\n');
	}
}

/* ---- The file -------------------------------------------------------------- */

static void json_string(FILE *file, const char *text)
{
	fputc('"', file);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fprintf(file, "\\%c", *text);
		else if ((unsigned char)*text < 0x20)
			fprintf(file, "\\u%04x", (unsigned)*text);
		else
			fputc(*text, file);
	}
	fputc('"', file);
}

static void json_member(FILE *file, const char *name, const char *value)
{
	fprintf(file, "  \"%s\": ", name);
	json_string(file, value);
	fputs(",\n", file);
}

static void json_row(FILE *file, const struct bench_row *row)
{
	fputs(ROW_START, file);
	json_string(file, row->name);
	fprintf(file, ", \"value\": %.6g, \"unit\": ", row->value);
	json_string(file, row->unit);
	if (row->has_bar)
		fprintf(file, ", \"bar\": %.6g, \"better\": \"%s\", \"ok\": %s",
			row->bar,
			row->better == BENCH_LOWER ? "lower" : "higher",
			row_ok(row) ? "true" : "false");
	fputc('}', file);
}

static void first_line(const char *command, char *out, size_t size)
{
	FILE *pipe = popen(command, "r");

	out[0] = '\0';
	if (!pipe)
		return;
	if (fgets(out, (int)size, pipe))
		out[strcspn(out, "\n")] = '\0';
	pclose(pipe);
}

static void cpu_name(char *out, size_t size)
{
	char line[256];
	FILE *file = fopen("/proc/cpuinfo", "r");

	snprintf(out, size, "unknown");
	while (file && fgets(line, sizeof(line), file)) {
		char *value = strstr(line, ": ");

		if (strncmp(line, "model name", 10) || !value)
			continue;
		value[strcspn(value, "\n")] = '\0';
		snprintf(out, size, "%s, %ld online", value + 2,
			 sysconf(_SC_NPROCESSORS_ONLN));
		break;
	}
	if (file)
		fclose(file);
}

static const char *file_system_name(const char *directory)
{
	static const struct {
		unsigned long magic;
		const char *name;
	} known[] = {
		{ 0xef53, "ext4" },	 { 0x58465342, "xfs" },
		{ 0x9123683e, "btrfs" }, { 0xf2f52010, "f2fs" },
		{ 0x01021994, "tmpfs" }, { 0x794c7630, "overlayfs" },
		{ 0x6969, "nfs" },	 { 0x65735546, "fuse" },
		{ 0x01021997, "9p" },
	};
	struct statfs info;

	if (statfs(directory, &info))
		return "unknown";
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if ((unsigned long)info.f_type == known[i].magic)
			return known[i].name;
	return "unknown";
}

static int measured_again(const struct bench *bench, const char *line)
{
	char *text = NULL;
	size_t size, i;
	int again = 0;

	for (i = 0; i < bench->n_rows && !again; i++) {
		FILE *memory = open_memstream(&text, &size);

		if (!memory)
			bench_fail("out of memory");
		fputs(ROW_START, memory);
		json_string(memory, bench->rows[i].name);
		fputc(',', memory);
		fclose(memory);
		again = !strncmp(line, text, size);
		free(text);
	}
	return again;
}

/* The rows of an older file, each a line without its comma. */
static char **old_rows(const struct bench *bench, size_t *out_n)
{
	FILE *file = bench->append ? fopen(bench->json, "r") : NULL;
	char **rows = NULL, *line = NULL;
	size_t capacity = 0, n = 0;

	while (file && getline(&line, &capacity, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (*line && line[strlen(line) - 1] == ',')
			line[strlen(line) - 1] = '\0';
		if (strncmp(line, ROW_START, strlen(ROW_START)) ||
		    measured_again(bench, line))
			continue;
		rows = must(realloc(rows, (n + 1) * sizeof(*rows)));
		rows[n++] = must(strdup(line));
	}
	free(line);
	if (file)
		fclose(file);
	*out_n = n;
	return rows;
}

static void write_json(const struct bench *bench)
{
	const char *directory = bench->directory;
	const char *commit = getenv("BENCH_COMMIT");
	char host[256], cpu[256], line[256];
	size_t n_old, i;
	char **old = old_rows(bench, &n_old);
	FILE *file = fopen(bench->json, "w");

	if (!file)
		bench_fail("%s: %s", bench->json, strerror(errno));
	if (!directory)
		directory = getenv("TMPDIR");
	if (!directory)
		directory = "/tmp";
	if (gethostname(host, sizeof(host)))
		snprintf(host, sizeof(host), "unknown");
	host[sizeof(host) - 1] = '\0';
	cpu_name(cpu, sizeof(cpu));
	if (!commit) {
		first_line("git -C '" BENCH_SOURCE
			   "' describe --always --dirty 2>/dev/null",
			   line, sizeof(line));
		commit = *line ? line : "unknown";
	}

	fputs("{\n", file);
	json_member(file, "host", host);
	json_member(file, "cpu", cpu);
	json_member(file, "fs", file_system_name(directory));
	json_member(file, "build", BENCH_BUILD);
	json_member(file, "commit", commit);
	fputs("  \"rows\": [\n", file);
	for (i = 0; i < n_old; i++) {
		fprintf(file, "%s%s\n", old[i],
			i + 1 < n_old + bench->n_rows ? "," : "");
		free(old[i]);
	}
	free(old);
	for (i = 0; i < bench->n_rows; i++) {
		json_row(file, &bench->rows[i]);
		fputs(i + 1 < bench->n_rows ? ",\n" : "\n", file);
	}
	fputs("  ]\n}\n", file);
	if (fclose(file))
		bench_fail("%s: %s", bench->json, strerror(errno));
}

int bench_end(struct bench *bench)
{
	print_table(bench);
	if (bench->json)
		write_json(bench);
	for (size_t i = 0; i < bench->n_rows; i++) {
		free(bench->rows[i].name);
		free(bench->rows[i].unit);
	}
	free(bench->rows);
	free(bench->args);
	return 0;
}

/* ---- Time ------------------------------------------------------------------ */

uint64_t bench_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), by_value);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double bench_best(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[0];
}

void bench_progress(const char *what, size_t done, size_t total)
{
	static uint64_t next_ns;
	const uint64_t now_ns = bench_now_ns();

	if ((now_ns < next_ns && done < total) || !isatty(STDERR_FILENO))
		return;
	next_ns = now_ns + 200000000;
	if (done < total)
		fprintf(stderr, "\r%s: %zu of %zu\033[K", what, done, total);
	else
		fprintf(stderr, "\r\033[K");
}

void bench_make_folder(char path[BENCH_FOLDER_BYTES], uint64_t bytes)
{
	const char *folder = getenv("TMPDIR");
	struct statvfs info;

	if (!folder)
		folder = !statvfs("/dev/shm", &info) &&
					 info.f_bavail * info.f_frsize >= bytes
				 ? "/dev/shm"
				 : "/var/tmp";
	snprintf(path, BENCH_FOLDER_BYTES, "%s/kiln-bench-XXXXXX", folder);
	if (!mkdtemp(path))
		bench_fail("%s: %s", path, strerror(errno));
}

void bench_remove_tree(const char *path)
{
	struct dirent *entry;
	char below[4096];
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		if (unlink(below) && (errno == EISDIR || errno == EPERM))
			bench_remove_tree(below);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}
