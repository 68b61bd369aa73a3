/* SPDX-License-Identifier: MIT */

#include "out.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "options.h"
#include "sys/sys.h"

#define BOLD	 "\033[1m"
#define PLAIN	 "\033[0m"
#define GAP	 2 /* columns between columns */
#define LAST_MIN 8 /* below this, rather drop another column */

void ki_complain(const char *format, ...)
{
	char line[2048];
	struct ki_bytes safe;
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	ki_bytes_init(&safe);
	ki_out_safe(&safe, line, 0);
	if (!safe.failed)
		dprintf(STDERR_FILENO, "kiln: %.*s\n", (int)safe.size,
			(const char *)safe.data);
	ki_bytes_fini(&safe);
}

int ki_out_write(struct ki_bytes *text, int status)
{
	size_t done = 0;

	signal(SIGPIPE, SIG_IGN);
	if (text->failed) {
		ki_complain("out of memory");
		status = KI_EXIT_FAILED;
	}
	while (!text->failed && done < text->size) {
		ssize_t n = write(STDOUT_FILENO, text->data + done,
				  text->size - done);
		if (n >= 0) {
			done += (size_t)n;
		} else if (errno == EPIPE) {
			break;
		} else if (errno != EINTR) {
			ki_complain("cannot write: %s", strerror(errno));
			status = KI_EXIT_FAILED;
			break;
		}
	}
	ki_bytes_fini(text);
	return status;
}

static int write_whole(const struct ki_sys *sys, const char *path,
		       const void *data, size_t size)
{
	int err, fd = sys->open(sys, path,
				KI_OPEN_WRITE | KI_OPEN_CREATE |
					KI_OPEN_EXCLUSIVE,
				0644);

	if (fd < 0)
		return fd;
	err = ki_pwrite_all(sys, fd, data, size, 0);
	if (sys->close(sys, fd) && !err)
		err = -EIO;
	return err;
}

static int publish(const struct ki_sys *sys, const char *path, const void *data,
		   size_t size)
{
	char temporary[KI_PATH_MAX];
	struct ki_file_info info;
	int err;

	if (!sys->lstat(sys, path, &info) && !S_ISREG(info.mode))
		return -EINVAL;
	if (snprintf(temporary, sizeof(temporary), "%s.%d.tmp", path,
		     ki_process_id()) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	err = write_whole(sys, temporary, data, size);
	if (err == -EEXIST)
		return err;
	if (!err)
		err = sys->rename(sys, temporary, path);
	if (err)
		(void)sys->unlink(sys, temporary);
	return err;
}

int ki_out_file(const char *path, const void *data, size_t size)
{
	int err = publish(&ki_sys_posix, path, data, size);

	if (!err)
		return KI_EXIT_OK;
	ki_complain("cannot write %s: %s", path,
		    err == -EINVAL ? "it is there and no file; '-o -' is "
				     "standard output"
				   : strerror(-err));
	return KI_EXIT_FAILED;
}

/* ---- The terminal --------------------------------------------------------- */

void ki_out_json(struct ki_bytes *out, struct ki_json *out_json)
{
	ki_json_begin(out_json, out);
	ki_json_object(out_json, NULL);
	ki_json_number(out_json, "schema", 1);
}

int ki_out_columns(void)
{
	const char *text = getenv("COLUMNS");
	int columns = text ? atoi(text) : 0;
	struct winsize size;

	if (columns > 0)
		return columns;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
		return size.ws_col;
	return isatty(STDOUT_FILENO) ? 80 : 0;
}

static int is_terminal(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && term && strcmp(term, "dumb");
}

int ki_out_is_colourful(int fd)
{
	const char *no = getenv("NO_COLOR");

	return !(no && *no) && is_terminal(fd);
}

int ki_out_has_progress(void)
{
	return is_terminal(STDERR_FILENO);
}

/* ---- Text ----------------------------------------------------------------- */

size_t ki_out_character(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;
	size_t size, i;

	if (*c < 0x80)
		return *c >= 0x20 && *c != 0x7f;
	if (*c >= 0xc2 && *c < 0xe0)
		size = 2;
	else if (*c >= 0xe0 && *c < 0xf0)
		size = 3;
	else if (*c >= 0xf0 && *c < 0xf5)
		size = 4;
	else
		return 0;
	for (i = 1; i < size; i++)
		if ((c[i] & 0xc0) != 0x80)
			return 0;
	if (c[0] == 0xc2 && c[1] < 0xa0)
		return 0;
	return size;
}

static int columns_of(const char *text)
{
	int columns = 0;

	while (*text) {
		size_t size = ki_out_character(text);

		text += size ? size : 1;
		columns++;
	}
	return columns;
}

int ki_out_safe(struct ki_bytes *out, const char *text, int width)
{
	int wanted = width ? columns_of(text) : 0;
	int room = wanted > width && width > 2 ? width - 2 : width;
	int used = 0;

	while (*text && (!width || used < room)) {
		size_t size = ki_out_character(text);

		if (size)
			ki_bytes_add(out, text, size);
		else
			ki_bytes_add_u8(out, '?');
		text += size ? size : 1;
		used++;
	}
	if (*text && room < width) {
		ki_bytes_add_string(out, "..");
		used += 2;
	}
	return used;
}

static void spaces(struct ki_bytes *out, int n)
{
	while (n-- > 0)
		ki_bytes_add_u8(out, ' ');
}

void ki_out_wrap(struct ki_bytes *out, const char *text, int column, int indent,
		 int width)
{
	char word[4096];
	int is_first = 1;

	while (*text) {
		size_t length = strcspn(text, " ");
		int columns;

		snprintf(word, sizeof(word), "%.*s", (int)length, text);
		text += length;
		text += strspn(text, " ");
		columns = columns_of(word);
		if (!is_first && width && column + 1 + columns > width) {
			ki_bytes_add_u8(out, '\n');
			spaces(out, indent);
			column = indent;
		} else if (!is_first) {
			ki_bytes_add_u8(out, ' ');
			column++;
		}
		column += ki_out_safe(out, word, 0);
		is_first = 0;
	}
	ki_bytes_add_u8(out, '\n');
}

/* ---- Tables --------------------------------------------------------------- */

struct layout {
	int widths[KI_COLUMNS_MAX];
	int dropped[KI_COLUMNS_MAX];
};

static int total(const struct layout *layout, int n_columns)
{
	int sum = 0, i;

	for (i = 0; i < n_columns; i++)
		if (!layout->dropped[i])
			sum += layout->widths[i] + (sum ? GAP : 0);
	return sum;
}

/* Columns as wide as their widest cell; then drop and squeeze. */
static void lay_out(struct layout *layout, const struct ki_column *columns,
		    int n_columns, const char *const *cells, size_t n_rows,
		    int width)
{
	int last = n_columns - 1, natural, over, i;
	size_t row;

	memset(layout, 0, sizeof(*layout));
	for (i = 0; i < n_columns; i++) {
		layout->widths[i] = columns_of(columns[i].title);
		for (row = 0; row < n_rows; row++) {
			int w = columns_of(
				cells[row * (size_t)n_columns + (size_t)i]);
			if (w > layout->widths[i])
				layout->widths[i] = w;
		}
	}
	if (!width)
		return;
	natural = layout->widths[last];
	if (layout->widths[last] > LAST_MIN)
		layout->widths[last] = LAST_MIN;
	while (total(layout, n_columns) > width) {
		int worst = -1;

		for (i = 0; i < n_columns; i++)
			if (!layout->dropped[i] && columns[i].rank &&
			    (worst < 0 ||
			     columns[i].rank > columns[worst].rank))
				worst = i;
		if (worst < 0)
			break;
		layout->dropped[worst] = 1;
	}
	over = width - total(layout, n_columns);
	if (!layout->dropped[last] && over > 0) {
		layout->widths[last] += over;
		if (layout->widths[last] > natural)
			layout->widths[last] = natural;
	}
}

static void print_row(struct ki_bytes *out, const struct layout *layout,
		      const struct ki_column *columns, int n_columns,
		      const char *const *cells)
{
	int pending = 0, is_first = 1, i;

	for (i = 0; i < n_columns; i++) {
		int width = layout->widths[i], used;

		if (layout->dropped[i])
			continue;
		spaces(out, pending + (is_first ? 0 : GAP));
		is_first = 0;
		used = columns_of(cells[i]);
		if (columns[i].is_right)
			spaces(out, width - used);
		used = ki_out_safe(out, cells[i], width);
		pending = columns[i].is_right ? 0 : width - used;
	}
	ki_bytes_add_u8(out, '\n');
}

void ki_out_table(struct ki_bytes *out, const struct ki_column *columns,
		  int n_columns, const char *const *cells, size_t n_rows,
		  int width, int is_colourful)
{
	const char *titles[KI_COLUMNS_MAX];
	struct layout layout;
	size_t row;
	int i;

	lay_out(&layout, columns, n_columns, cells, n_rows, width);
	for (i = 0; i < n_columns; i++)
		titles[i] = columns[i].title;
	if (is_colourful)
		ki_bytes_add_string(out, BOLD);
	print_row(out, &layout, columns, n_columns, titles);
	if (is_colourful)
		ki_bytes_add_string(out, PLAIN);
	for (row = 0; row < n_rows; row++)
		print_row(out, &layout, columns, n_columns,
			  cells + row * (size_t)n_columns);
}
