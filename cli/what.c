/* SPDX-License-Identifier: MIT */

#include "what.h"

#include <string.h>

int ki_what_is_told(const struct ki_settings *settings)
{
	const char *url = settings->options.store_url;

	return url && !strncmp(url, "neo:", 4);
}

void ki_what_look(const struct ki_settings *settings,
		  const struct kiln_entry *entry,
		  struct kiln_neo_description *out_what)
{
	char path[KI_PATH_MAX];

	memset(out_what, 0, sizeof(*out_what));
	if (ki_what_is_told(settings) && *entry->file &&
	    !ki_path_join(path, settings->directory, entry->file))
		(void)kiln_neo_describe_file(path, out_what);
}

static unsigned n_named(const struct kiln_neo_description *what)
{
	unsigned n = *what->kernels != '\0';

	for (const char *c = what->kernels; *c; c++)
		n += *c == ' ';
	return n;
}

void ki_what_line(const struct kiln_neo_description *what, struct ki_bytes *out)
{
	const unsigned n = n_named(what);

	if (what->form != KILN_NEO_OTHER)
		ki_bytes_add_string(out, kiln_neo_form_name(what->form));
	if (what->is_cut)
		ki_bytes_add_string(out, ", cut short");
	if (*what->device)
		ki_bytes_printf(out, " for %s", what->device);
	if (n)
		ki_bytes_printf(out, ": %s", what->kernels);
	if (what->n_kernels > n)
		ki_bytes_printf(out, "%s%u %skernels", n ? " and " : ": ",
				what->n_kernels - n, n ? "more " : "");
}

static void add_kernels(const struct kiln_neo_description *what,
			struct ki_json *json)
{
	const char *name = what->kernels;

	ki_json_array(json, "kernels");
	while (*name) {
		size_t size = strcspn(name, " ");

		ki_json_string_n(json, NULL, name, size);
		name += size + (name[size] == ' ');
	}
	ki_json_end(json);
}

void ki_what_json(const struct kiln_neo_description *what, struct ki_json *json)
{
	ki_json_object(json, "what");
	ki_json_string(json, "form", kiln_neo_form_name(what->form));
	ki_json_string(json, "elf_type",
		       kiln_neo_elf_type_name(what->elf_type));
	ki_json_bool(json, "has_il", what->has_il);
	ki_json_bool(json, "cut_short", what->is_cut);
	ki_json_string(json, "device", what->device);
	ki_json_number(json, "n_kernels", what->n_kernels);
	add_kernels(what, json);
	ki_json_end(json);
}
