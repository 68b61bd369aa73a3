/* SPDX-License-Identifier: MIT */

/*
 * What a file in a cache directory is: its form, the device it is for, and its
 * kernels, as far as the format says.  docs/formats/neo.md has the formats.
 *
 * Nothing that is read is believed: each read names its offset and size within a
 * view, which refuses what lies outside.  What repeats has an upper bound.  A
 * file is read in the few places that matter, not as a whole.
 */

#include "store/neo/neo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/status.h"

#define SECTIONS_MAX 4096u
#define KERNELS_MAX  4096u
#define MEMBERS_MAX  256u
#define NOTES_MAX    64u
#define DEPTH_MAX    3
#define NAME_BYTES   256u
#define TEXT_MAX     ((size_t)1 << 20)
#define WORDS_MAX    ((size_t)64 << 10) /* of SPIR-V: entry points come early */

/* ---- Views ----------------------------------------------------------------------- */

/* A part of a file, or of memory. */
struct view {
	const struct ki_sys *sys; /* NULL: of memory */
	int fd;
	const uint8_t *data;
	uint64_t offset; /* in the file */
	uint64_t size;
};

static int view_read(const struct view *view, void *out, size_t size,
		     uint64_t offset)
{
	if (offset > view->size || size > view->size - offset)
		return -EINVAL;
	if (view->sys)
		return ki_pread_all(view->sys, view->fd, out, size,
				    view->offset + offset);
	if (size)
		memcpy(out, view->data + offset, size);
	return 0;
}

/* As much of it as there is. */
static struct view view_part(const struct view *view, uint64_t offset,
			     uint64_t size)
{
	struct view part = *view;

	if (offset > view->size)
		offset = view->size;
	if (size > view->size - offset)
		size = view->size - offset;
	if (!view->sys && offset)
		part.data += offset;
	part.offset += offset;
	part.size = size;
	return part;
}

/* Text up to `size` - 1 characters or the first NUL. */
static size_t view_text(const struct view *view, uint64_t offset, char *out,
			size_t size)
{
	struct view part = view_part(view, offset, size - 1);

	if (view_read(&part, out, (size_t)part.size, 0))
		part.size = 0;
	out[part.size] = '\0';
	return strlen(out);
}

/* ---- What is found ----------------------------------------------------------------- */

static void add_kernel(struct kiln_neo_description *description,
		       const char *name, size_t size)
{
	size_t used = strlen(description->kernels);
	char *end = description->kernels + used;

	description->n_kernels++;
	if (!size || used + 1 + size >= sizeof(description->kernels))
		return;
	if (used)
		*end++ = ' ';
	for (size_t i = 0; i < size; i++)
		*end++ = name[i] > ' ' && name[i] < 0x7f ? name[i] : '?';
	*end = '\0';
}

struct device {
	uint32_t number;
	const char *name;
};

static const struct device products[] = {
	{ 16, "Broadwell" },	  { 17, "Cherryview" },
	{ 18, "Skylake" },	  { 19, "Kaby Lake" },
	{ 20, "Coffee Lake" },	  { 22, "Apollo Lake" },
	{ 23, "Gemini Lake" },	  { 25, "Ice Lake" },
	{ 26, "Ice Lake LP" },	  { 27, "Lakefield" },
	{ 28, "Elkhart Lake" },	  { 29, "Tiger Lake" },
	{ 30, "Rocket Lake" },	  { 31, "Alder Lake S" },
	{ 32, "Alder Lake P" },	  { 33, "Alder Lake N" },
	{ 1210, "DG1" },	  { 1250, "Xe HP SDV" },
	{ 1270, "DG2" },	  { 1271, "Ponte Vecchio" },
	{ 1272, "Meteor Lake" },  { 1273, "Arrow Lake" },
	{ 1274, "Battlemage" },	  { 1275, "Lunar Lake" },
	{ 1300, "Panther Lake" }, { 0, NULL },
};

static const struct device cores[] = {
	{ 11, "Gen8" },	      { 12, "Gen9" },	    { 13, "Gen10" },
	{ 14, "Gen10 LP" },   { 15, "Gen11" },	    { 16, "Gen11 LP" },
	{ 17, "Gen12" },      { 18, "Gen12 LP" },   { 0x0c05, "Xe HP" },
	{ 0x0c07, "Xe HPG" }, { 0x0c08, "Xe HPC" }, { 0x0c09, "Xe2 HPG" },
	{ 0x1e00, "Xe3" },    { 0x2300, "Xe3P" },   { 0, NULL },
};

static void set_device(struct kiln_neo_description *description,
		       const struct device *devices, const char *what,
		       uint32_t number)
{
	while (devices->name && devices->number != number)
		devices++;
	if (devices->name)
		snprintf(description->device, sizeof(description->device), "%s",
			 devices->name);
	else
		snprintf(description->device, sizeof(description->device),
			 "%s %u", what, (unsigned)number);
}

/* ---- SPIR-V -------------------------------------------------------------------------- */

#define SPIRV_MAGIC	  0x07230203u
#define SPIRV_HEADER	  20u
#define SPIRV_ENTRY_POINT 15u
#define SPIRV_FUNCTION	  54u
#define SPIRV_KERNEL	  6u

static void describe_spirv(const struct view *view,
			   struct kiln_neo_description *description)
{
	const size_t size =
		view->size < WORDS_MAX ? (size_t)view->size : WORDS_MAX;
	uint8_t *words = malloc(size + 1);
	size_t at = SPIRV_HEADER, length;

	if (!words || view_read(view, words, size, 0))
		goto out;
	for (; at + 4 <= size; at += length) {
		const uint32_t op = ki_get_u32(words + at) & 0xffff;
		const char *name = (const char *)words + at + 12;

		length = (size_t)(ki_get_u32(words + at) >> 16) * 4;
		if (!length || length > size - at || op == SPIRV_FUNCTION)
			break;
		if (op == SPIRV_ENTRY_POINT && length > 12 &&
		    ki_get_u32(words + at + 4) == SPIRV_KERNEL)
			add_kernel(description, name,
				   strnlen(name, length - 12));
	}
out:
	free(words);
}

/* ---- Patch tokens -------------------------------------------------------------------- */

#define TOKENS_MAGIC   0x494e5443u /* "CTNI" */
#define TOKENS_VERSION 1081u
#define TOKENS_HEADER  28u
#define TOKENS_KERNEL  40u

static void describe_tokens(const struct view *view,
			    struct kiln_neo_description *description)
{
	uint8_t header[TOKENS_KERNEL];
	uint64_t at = TOKENS_HEADER;
	char name[NAME_BYTES];
	uint32_t n;

	if (view_read(view, header, TOKENS_HEADER, 0)) {
		description->is_cut = 1;
		return;
	}
	set_device(description, cores, "core", ki_get_u32(header + 8));
	if (ki_get_u32(header + 4) != TOKENS_VERSION)
		return;
	n = ki_get_u32(header + 16);
	at += ki_get_u32(header + 24);
	for (uint32_t i = 0; i < n && i < KERNELS_MAX; i++) {
		uint32_t name_size;
		size_t length;

		if (view_read(view, header, TOKENS_KERNEL, at)) {
			description->is_cut = 1;
			return;
		}
		name_size = ki_get_u32(header + 12);
		length = view_text(view, at + TOKENS_KERNEL, name, NAME_BYTES);
		add_kernel(description, name,
			   length < name_size ? length : name_size);
		/* The name, tokens, code, and three heaps of state. */
		at += TOKENS_KERNEL + (uint64_t)name_size;
		for (unsigned part = 0; part < 5; part++)
			at += ki_get_u32(header + 16 + 4 * part);
	}
	if (at > view->size)
		description->is_cut = 1;
}

/* ---- ELF ------------------------------------------------------------------------------- */

#define ELF_HEADER	64u
#define MACHINE_INTELGT 205u
#define SECTION_NOBITS	8u
#define SECTION_BINARY	0xff000005u
#define SECTION_SPIRV	0xff000009u
#define SECTION_ZEINFO	0xff000011u
#define NOTE_PRODUCT	1u
#define NOTE_CORE	2u
#define NOTE_IP		6u

/* Where a field lies in files of 64 and of 32 bits. */
struct elf {
	const struct view *view;
	int is_64;
	uint64_t table; /* of sections */
	uint32_t n_sections;
	uint32_t entry_size;
	struct view names;
};

struct section {
	uint32_t type;
	struct view view;
	int is_cut;
	char name[NAME_BYTES];
};

static int read_section(const struct elf *elf, uint32_t n,
			struct section *section)
{
	uint8_t bytes[64];
	uint64_t offset, size;

	if (view_read(elf->view, bytes, elf->is_64 ? 64 : 40,
		      elf->table + (uint64_t)n * elf->entry_size))
		return -1;
	section->type = ki_get_u32(bytes + 4);
	offset = elf->is_64 ? ki_get_u64(bytes + 24) : ki_get_u32(bytes + 16);
	size = elf->is_64 ? ki_get_u64(bytes + 32) : ki_get_u32(bytes + 20);
	if (section->type == SECTION_NOBITS || !section->type)
		size = 0;
	section->view = view_part(elf->view, offset, size);
	section->is_cut = section->view.size != size;
	(void)view_text(&elf->names, ki_get_u32(bytes), section->name,
			sizeof(section->name));
	return 0;
}

static int elf_open(const struct view *view, const uint8_t *head,
		    struct elf *elf)
{
	struct section names;
	uint32_t n_names;

	*elf = (struct elf){ .view = view, .is_64 = head[4] == 2 };
	elf->table = elf->is_64 ? ki_get_u64(head + 40) : ki_get_u32(head + 32);
	elf->entry_size = ki_get_u16(head + (elf->is_64 ? 58 : 46));
	elf->n_sections = ki_get_u16(head + (elf->is_64 ? 60 : 48));
	n_names = ki_get_u16(head + (elf->is_64 ? 62 : 50));
	if (elf->table > view->size ||
	    elf->entry_size < (elf->is_64 ? 64u : 40u))
		return -1;
	elf->names = view_part(view, 0, 0);
	if (n_names < elf->n_sections && !read_section(elf, n_names, &names))
		elf->names = names.view;
	return 0;
}

/* A product says more than a core; the version of the IP more than none. */
static void read_notes(const struct view *view,
		       struct kiln_neo_description *description)
{
	uint64_t at = 0;
	uint32_t best = 0;

	for (unsigned i = 0; i < NOTES_MAX; i++) {
		uint8_t note[24];
		uint64_t name_size, size;
		uint32_t type, value;

		if (view_read(view, note, 12, at))
			break;
		name_size = ((uint64_t)ki_get_u32(note) + 3) & ~(uint64_t)3;
		size = ((uint64_t)ki_get_u32(note + 4) + 3) & ~(uint64_t)3;
		type = ki_get_u32(note + 8);
		if (name_size == 8 && size == 4 &&
		    !view_read(view, note, 24, at) &&
		    !memcmp(note + 12, "IntelGT", 8)) {
			value = ki_get_u32(note + 20);
			if (type == NOTE_PRODUCT && value) {
				set_device(description, products, "product",
					   value);
				return;
			}
			if (type == NOTE_CORE && value && !best) {
				set_device(description, cores, "core", value);
				best = value;
			}
			if (type == NOTE_IP && value && !best)
				snprintf(description->device,
					 sizeof(description->device),
					 "IP %u.%u.%u", value >> 22,
					 value >> 14 & 0xff, value & 0x3f);
		}
		at += 12 + name_size + size;
	}
}

/* ---- .ze_info: YAML, as much of it as compilers write ------------------------------------- */

static size_t indent_of(const char *line)
{
	return strspn(line, " ");
}

static void add_name(struct kiln_neo_description *description,
		     const char *value)
{
	size_t size;

	value += strspn(value, " ");
	if (*value == '\'' || *value == '"') {
		const char quote[] = { *value++, '\0' };

		size = strcspn(value, quote);
	} else {
		size = strcspn(value, " \r");
	}
	add_kernel(description, value, size);
}

/*
 *	kernels:
 *	  - name:            vadd
 *	    execution_env:
 *	      name: ...				deeper: not ours
 */
static void read_ze_info(char *text, struct kiln_neo_description *description)
{
	char *save = NULL;
	size_t dash = SIZE_MAX;
	int is_inside = 0;

	for (char *line = strtok_r(text, "\n", &save);
	     line && description->n_kernels < KERNELS_MAX;
	     line = strtok_r(NULL, "\n", &save)) {
		size_t indent = indent_of(line);
		const char *key = line + indent;

		if (!indent && *key != '-') {
			is_inside = !strncmp(line, "kernels:", 8);
			continue;
		}
		if (!is_inside || !*key)
			continue;
		if (*key == '-' && dash == SIZE_MAX)
			dash = indent;
		if (*key == '-' && indent == dash) {
			key += 1 + indent_of(key + 1);
			indent = (size_t)(key - line);
		}
		if (indent == dash + 2 && !strncmp(key, "name:", 5))
			add_name(description, key + 5);
	}
}

static void describe_ze_info(const struct view *view,
			     struct kiln_neo_description *description)
{
	size_t size = view->size < TEXT_MAX ? (size_t)view->size : TEXT_MAX;
	char *text = malloc(size + 1);

	if (text && !view_read(view, text, size, 0)) {
		for (size_t i = 0; i < size; i++)
			if (!text[i])
				text[i] = ' ';
		text[size] = '\0';
		read_ze_info(text, description);
	}
	free(text);
}

/* ---- Forms ---------------------------------------------------------------------------------- */

static void describe(const struct view *view, int depth,
		     struct kiln_neo_description *description);

/* What a part tells of the whole. */
static void describe_part(const struct view *view, int depth,
			  struct kiln_neo_description *description)
{
	struct kiln_neo_description part = { KILN_NEO_OTHER };

	if (depth == DEPTH_MAX)
		return;
	describe(view, depth + 1, &part);
	description->has_il |= part.has_il;
	if (!*description->device)
		memcpy(description->device, part.device, sizeof(part.device));
	if (!description->n_kernels) {
		description->n_kernels = part.n_kernels;
		memcpy(description->kernels, part.kernels,
		       sizeof(part.kernels));
	}
}

static void describe_section(const struct section *section, int depth,
			     struct kiln_neo_description *description)
{
	switch (section->type) {
	case SECTION_SPIRV:
		description->has_il = 1;
		break;
	case SECTION_BINARY:
		describe_part(&section->view, depth, description);
		break;
	case SECTION_ZEINFO:
		describe_ze_info(&section->view, description);
		break;
	default:
		if (!strcmp(section->name, ".note.intelgt.compat"))
			read_notes(&section->view, description);
	}
}

static enum kiln_neo_form elf_form(unsigned type, unsigned machine)
{
	if (type >= 0xff01 && type <= 0xff05)
		return KILN_NEO_OPENCL_ELF;
	if ((type >= 0xff11 && type <= 0xff13) || machine == MACHINE_INTELGT)
		return KILN_NEO_ZEBIN;
	return KILN_NEO_OTHER_ELF;
}

static void describe_elf(const struct view *view, const uint8_t *head,
			 size_t head_size, int depth,
			 struct kiln_neo_description *description)
{
	struct section section;
	struct elf elf;

	if (head_size < ELF_HEADER && (head_size < 52 || head[4] == 2)) {
		description->form = KILN_NEO_OTHER_ELF;
		description->is_cut = 1;
		return;
	}
	description->elf_type = ki_get_u16(head + 16);
	description->form =
		elf_form(description->elf_type, ki_get_u16(head + 18));
	if (description->form == KILN_NEO_OTHER_ELF || head[5] != 1 ||
	    head[4] < 1 || head[4] > 2)
		return;
	if (elf_open(view, head, &elf)) {
		description->is_cut = 1;
		return;
	}
	for (uint32_t i = 0; i < elf.n_sections && i < SECTIONS_MAX; i++) {
		if (read_section(&elf, i, &section)) {
			description->is_cut = 1;
			return;
		}
		if (section.is_cut)
			description->is_cut = 1;
		describe_section(&section, depth, description);
	}
}

/* "!<arch>\n", then for each member 60 bytes, its bytes, and one more if these
   are an odd number. */
static void describe_archive(const struct view *view, int depth,
			     struct kiln_neo_description *description)
{
	uint64_t at = 8;

	for (unsigned i = 0; i < MEMBERS_MAX && at < view->size; i++) {
		struct view member;
		char header[61], *end;
		unsigned long long size;

		if (view_read(view, header, 60, at)) {
			description->is_cut = 1;
			return;
		}
		header[58] = '\0';
		size = strtoull(header + 48, &end, 10);
		if (end == header + 48 || size > view->size - at - 60) {
			description->is_cut = 1;
			return;
		}
		member = view_part(view, at + 60, size);
		describe_part(&member, depth, description);
		at += 60 + size + (size & 1);
	}
}

/* kiln's own, of the OpenCL layer: docs/formats/opencl-entry.md.  The first
   device's. */
static void describe_devices(const struct view *view, int depth,
			     struct kiln_neo_description *description)
{
	uint8_t head[24];
	struct view part;
	uint32_t n;

	if (view_read(view, head, sizeof(head), 0))
		return;
	n = ki_get_u32(head + 8);
	part = view_part(view, 16 + 8 * (uint64_t)n, ki_get_u64(head + 16));
	if (part.size && depth < DEPTH_MAX)
		describe(&part, depth + 1, description);
}

static void describe(const struct view *view, int depth,
		     struct kiln_neo_description *description)
{
	uint8_t head[ELF_HEADER] = { 0 };
	const size_t size =
		view->size < sizeof(head) ? (size_t)view->size : sizeof(head);

	if (!size) {
		description->form = KILN_NEO_EMPTY;
		return;
	}
	if (view_read(view, head, size, 0))
		return;
	if (!memcmp(head, "\177ELF", 4)) {
		describe_elf(view, head, size, depth, description);
	} else if (ki_get_u32(head) == SPIRV_MAGIC) {
		description->form = KILN_NEO_SPIRV;
		description->has_il = 1;
		describe_spirv(view, description);
	} else if (ki_get_u32(head) == TOKENS_MAGIC) {
		description->form = KILN_NEO_PATCH_TOKENS;
		describe_tokens(view, description);
	} else if (!memcmp(head, "!<arch>\n", 8)) {
		description->form = KILN_NEO_ARCHIVE;
		describe_archive(view, depth, description);
	} else if (!memcmp(head, "BC\xc0\xde", 4)) {
		description->form = KILN_NEO_BITCODE;
	} else if (!memcmp(head, "KCLB\1\0\0\0", 8)) {
		describe_devices(view, depth, description);
	}
}

/* ---- Files ------------------------------------------------------------------------------------ */

void kiln_neo_describe_bytes(const void *data, size_t size,
			     struct kiln_neo_description *out_description)
{
	const struct view view = { .fd = -1, .data = data, .size = size };

	*out_description = (struct kiln_neo_description){ KILN_NEO_OTHER };
	describe(&view, 0, out_description);
}

enum kiln_status ki_neo_describe(const struct ki_sys *sys, const char *path,
				 struct kiln_neo_description *out_description)
{
	struct ki_file_info info;
	struct view view = { .sys = sys };
	int err;

	*out_description = (struct kiln_neo_description){ KILN_NEO_OTHER };
	view.fd = sys->open(sys, path,
			    KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME,
			    0);
	if (view.fd == -ENOENT || view.fd == -ENOTDIR || view.fd == -ELOOP ||
	    view.fd == -ENXIO)
		return KILN_MISS;
	if (view.fd < 0)
		return ki_status_from_errno(view.fd);
	err = sys->fstat(sys, view.fd, &info);
	if (!err && S_ISREG(info.mode)) {
		view.size = info.size;
		describe(&view, 0, out_description);
	}
	(void)sys->close(sys, view.fd);
	if (err)
		return ki_status_from_errno(err);
	return S_ISREG(info.mode) ? KILN_OK : KILN_MISS;
}

enum kiln_status kiln_neo_describe_file(
	const char *path, struct kiln_neo_description *out_description)
{
	return ki_neo_describe(&ki_sys_posix, path, out_description);
}

/* ---- Words ------------------------------------------------------------------------------------- */

const char *kiln_neo_form_name(enum kiln_neo_form form)
{
	static const char *const names[] = {
		[KILN_NEO_OTHER] = "unknown",
		[KILN_NEO_EMPTY] = "empty",
		[KILN_NEO_SPIRV] = "SPIR-V",
		[KILN_NEO_BITCODE] = "LLVM bitcode",
		[KILN_NEO_OPENCL_ELF] = "OpenCL ELF",
		[KILN_NEO_ZEBIN] = "zebin",
		[KILN_NEO_PATCH_TOKENS] = "patch tokens",
		[KILN_NEO_ARCHIVE] = "archive",
		[KILN_NEO_OTHER_ELF] = "other ELF",
	};

	return (unsigned)form < sizeof(names) / sizeof(*names) ? names[form]
							       : names[0];
}

const char *kiln_neo_elf_type_name(unsigned elf_type)
{
	static const struct device types[] = {
		{ 0x0001, "ET_REL" },
		{ 0xff01, "ET_OPENCL_SOURCE" },
		{ 0xff02, "ET_OPENCL_OBJECTS" },
		{ 0xff03, "ET_OPENCL_LIBRARY" },
		{ 0xff04, "ET_OPENCL_EXECUTABLE" },
		{ 0xff05, "ET_OPENCL_DEBUG" },
		{ 0xff11, "ET_ZEBIN_REL" },
		{ 0xff12, "ET_ZEBIN_EXE" },
		{ 0xff13, "ET_ZEBIN_DYN" },
		{ 0, NULL },
	};
	const struct device *type = types;

	while (type->name && type->number != elf_type)
		type++;
	return type->name ? type->name : "";
}
