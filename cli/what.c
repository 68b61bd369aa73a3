/* SPDX-License-Identifier: MIT */

#include "what.h"

#include <string.h>

static int is_kind(const struct ki_settings *settings, const char *kind)
{
	const char *url = settings->options.store_url;

	return url && !strncmp(url, kind, strlen(kind));
}

int ki_what_is_sycl(const struct ki_settings *settings)
{
	return is_kind(settings, "sycl:");
}

int ki_what_is_told(const struct ki_settings *settings)
{
	return is_kind(settings, "neo:") || ki_what_is_sycl(settings);
}

const char *ki_what_owner(const struct ki_settings *settings)
{
	return ki_what_is_sycl(settings) ? "DPC++'s own" : "a driver's own";
}

void ki_what_look(const struct ki_settings *settings,
		  const struct kiln_entry *entry, struct ki_what *out_what)
{
	char path[KI_PATH_MAX];

	memset(out_what, 0, sizeof(*out_what));
	if (!ki_what_is_told(settings) || !*entry->file)
		return;
	out_what->is_sycl = ki_what_is_sycl(settings);
	if (out_what->is_sycl)
		ki_sycl_parts_look(settings->directory, entry->file,
				   &out_what->sycl, &out_what->form);
	else if (!ki_path_join(path, settings->directory, entry->file))
		(void)kiln_neo_describe_file(path, &out_what->form);
}

const char *ki_what_device(const struct ki_what *what)
{
	return *what->sycl.source.device_text ? what->sycl.source.device_text
					      : what->form.device;
}

/* ---- Text -------------------------------------------------------------------- */

static unsigned n_named(const struct kiln_neo_description *form)
{
	unsigned n = *form->kernels != '\0';

	for (const char *c = form->kernels; *c; c++)
		n += *c == ' ';
	return n;
}

static void add_sycl(const struct ki_sycl_parts *parts, struct ki_bytes *out)
{
	if (parts->is_kernel_compiler)
		ki_bytes_add_string(out, "kernel_compiler, ");
	if (!parts->has_bin)
		ki_bytes_add_string(out, "no binary");
	else if (parts->is_damaged)
		ki_bytes_add_string(out, "damaged");
}

void ki_what_line(const struct ki_what *what, struct ki_bytes *out)
{
	const struct kiln_neo_description *form = &what->form;
	const unsigned n = n_named(form);

	if (what->is_sycl)
		add_sycl(&what->sycl, out);
	if (what->is_sycl && (!what->sycl.has_bin || what->sycl.is_damaged))
		return;
	if (form->form != KILN_NEO_OTHER || what->is_sycl)
		ki_bytes_add_string(out, kiln_neo_form_name(form->form));
	if (form->is_cut)
		ki_bytes_add_string(out, ", cut short");
	if (*form->device)
		ki_bytes_printf(out, " for %s", form->device);
	if (n)
		ki_bytes_printf(out, ": %s", form->kernels);
	if (form->n_kernels > n)
		ki_bytes_printf(out, "%s%u %skernels", n ? " and " : ": ",
				form->n_kernels - n, n ? "more " : "");
}

/* ---- JSON -------------------------------------------------------------------- */

static void add_kernels(const struct kiln_neo_description *form,
			struct ki_json *json)
{
	const char *name = form->kernels;

	ki_json_array(json, "kernels");
	while (*name) {
		size_t size = strcspn(name, " ");

		ki_json_string_n(json, NULL, name, size);
		name += size + (name[size] == ' ');
	}
	ki_json_end(json);
}

static void add_parts(const struct ki_sycl_parts *parts, struct ki_json *json)
{
	ki_json_object(json, "sycl");
	ki_json_bool(json, "kernel_compiler", parts->is_kernel_compiler);
	ki_json_bool(json, "damaged", parts->is_damaged);
	ki_json_bool(json, "has_bin", parts->has_bin);
	ki_json_bool(json, "has_src", parts->has_src);
	ki_json_number(json, "bin_bytes", parts->binary.file_size);
	ki_json_number(json, "src_bytes", parts->source.file_size);
	ki_json_number(json, "binary_bytes", parts->binary.first.size);
	ki_json_number(json, "binaries", parts->binary.n);
	ki_json_string(json, "device", parts->source.device_text);
	ki_json_string(json, "options", parts->source.options_text);
	ki_json_number(json, "spec_bytes", parts->source.constants.size);
	ki_json_number(json, "image_bytes", parts->source.images.size);
	ki_json_string(json, "image_form",
		       kiln_neo_form_name(parts->image_form));
	ki_json_end(json);
}

void ki_what_json(const struct ki_what *what, struct ki_json *json)
{
	const struct kiln_neo_description *form = &what->form;

	ki_json_object(json, "what");
	ki_json_string(json, "form", kiln_neo_form_name(form->form));
	ki_json_string(json, "elf_type",
		       kiln_neo_elf_type_name(form->elf_type));
	ki_json_bool(json, "has_il", form->has_il);
	ki_json_bool(json, "cut_short", form->is_cut);
	ki_json_string(json, "device", form->device);
	ki_json_number(json, "n_kernels", form->n_kernels);
	add_kernels(form, json);
	if (what->is_sycl)
		add_parts(&what->sycl, json);
	ki_json_end(json);
}
