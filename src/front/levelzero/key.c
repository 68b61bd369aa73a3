/* SPDX-License-Identifier: MIT */

/* docs/formats/levelzero-key.md. */

#include "front/levelzero/ze.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND	    "levelzero module 1"
#define KIND_FAMILY "levelzero family 1"
#define CHAIN_MAX   64

/* Every structure of a chain begins so. */
struct link {
	ze_structure_type_t stype;
	const struct link *next;
};

/* ---- What is asked for ------------------------------------------------------- */

/* The one extension that is known, or NULL; -1 if there is another. */
static int find_program(const ze_module_desc_t *desc,
			const ze_module_program_exp_desc_t **out_program)
{
	const struct link *link = desc->pNext;
	int n = 0;

	*out_program = NULL;
	for (; link; link = link->next) {
		if (link->stype != ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC ||
		    *out_program || ++n > CHAIN_MAX)
			return -1;
		*out_program = (const void *)link;
	}
	return 0;
}

static enum kiln_status take_program(
	const ze_module_program_exp_desc_t *program,
	struct ki_ze_recipe *recipe, const char **out_why)
{
	uint32_t i;

	*out_why = "its modules are not given";
	if (!program->count || program->count > KI_ZE_MODULES_MAX ||
	    !program->inputSizes || !program->pInputModules)
		return KILN_E_UNSUPPORTED;
	recipe->n = program->count;
	recipe->is_program = 1;
	recipe->modules = calloc(recipe->n, sizeof(*recipe->modules));
	if (!recipe->modules)
		return KILN_E_NO_MEMORY;
	for (i = 0; i < program->count; i++) {
		recipe->modules[i] = (struct ki_ze_module){
			.il = program->pInputModules[i],
			.size = program->inputSizes[i],
			.flags = program->pBuildFlags ? program->pBuildFlags[i]
						      : NULL,
			.constants = program->pConstants
					     ? program->pConstants[i]
					     : NULL,
		};
		if (!recipe->modules[i].il || !recipe->modules[i].size)
			return KILN_E_UNSUPPORTED;
	}
	return KILN_OK;
}

enum kiln_status ki_ze_recipe(const ze_module_desc_t *desc,
			      struct ki_ze_recipe *recipe, const char **out_why)
{
	const ze_module_program_exp_desc_t *program;

	*recipe = (struct ki_ze_recipe){ .n = 1, .modules = &recipe->one };
	*out_why = "it is not SPIR-V that is given";
	if (desc->stype != ZE_STRUCTURE_TYPE_MODULE_DESC ||
	    desc->format != ZE_MODULE_FORMAT_IL_SPIRV)
		return KILN_E_UNSUPPORTED;
	if (find_program(desc, &program)) {
		*out_why = "an extension is used that kiln does not know";
		return KILN_E_UNSUPPORTED;
	}
	if (program)
		return take_program(program, recipe, out_why);
	recipe->one = (struct ki_ze_module){
		.il = desc->pInputModule,
		.size = desc->inputSize,
		.flags = desc->pBuildFlags,
		.constants = desc->pConstants,
	};
	return recipe->one.il && recipe->one.size ? KILN_OK
						  : KILN_E_UNSUPPORTED;
}

void ki_ze_recipe_fini(struct ki_ze_recipe *recipe)
{
	if (recipe->modules != &recipe->one)
		free(recipe->modules);
}

char *ki_ze_recipe_flags(const struct ki_ze_recipe *recipe)
{
	struct ki_bytes flags;
	size_t i, size;

	ki_bytes_init(&flags);
	for (i = 0; i < recipe->n; i++) {
		if (!recipe->modules[i].flags)
			continue;
		if (flags.size)
			ki_bytes_add_u8(&flags, ' ');
		ki_bytes_add(&flags, recipe->modules[i].flags,
			     strlen(recipe->modules[i].flags));
	}
	ki_bytes_add_u8(&flags, '\0');
	return (char *)ki_bytes_take(&flags, &size);
}

/* ---- Keys -------------------------------------------------------------------- */

/* "module N NAME"; of a single module only NAME. */
static const char *label_of(const struct ki_ze_recipe *recipe, size_t n,
			    const char *name, char out[64])
{
	if (!recipe->is_program)
		return name;
	snprintf(out, 64, "module %zu %s", n, name);
	return out;
}

static enum kiln_status add_constants(const struct ki_ze_recipe *recipe,
				      size_t n, struct kiln_key *key,
				      const char **out_why)
{
	const struct ki_ze_module *module = &recipe->modules[n];
	const ze_module_constants_t *constants = module->constants;
	char label[64], name[32];
	size_t size;
	uint32_t i;

	if (!constants || !constants->numConstants)
		return KILN_OK;
	*out_why = "the type of a specialization constant cannot be told";
	if (constants->numConstants > KI_ZE_CONSTANTS_MAX ||
	    !constants->pConstantIds || !constants->pConstantValues)
		return KILN_E_UNSUPPORTED;
	for (i = 0; i < constants->numConstants; i++) {
		size = ki_spirv_constant_bytes(module->il, module->size,
					       constants->pConstantIds[i]);
		if (!size || !constants->pConstantValues[i])
			return KILN_E_UNSUPPORTED;
		snprintf(name, sizeof(name), "constant %u",
			 constants->pConstantIds[i]);
		kiln_key_add(key, label_of(recipe, n, name, label),
			     constants->pConstantValues[i], size);
	}
	return KILN_OK;
}

static enum kiln_status add_module(const struct ki_ze_recipe *recipe, size_t n,
				   struct kiln_key *key, const char **out_why)
{
	const struct ki_ze_module *module = &recipe->modules[n];
	char label[64];

	if (module->flags)
		kiln_key_add_string(key, label_of(recipe, n, "options", label),
				    module->flags);
	kiln_key_add_digest(key, label_of(recipe, n, "il", label), module->il,
			    module->size);
	return add_constants(recipe, n, key, out_why);
}

enum kiln_status ki_ze_key(const struct ki_ze_recipe *recipe,
			   ze_device_handle_t device, struct kiln_key **out_key,
			   const char **out_why)
{
	struct kiln_key *key = kiln_key_new();
	enum kiln_status status = KILN_OK;
	size_t i;

	kiln_key_add_string(key, "kind", KIND);
	for (i = 0; i < recipe->n && !status; i++)
		status = add_module(recipe, i, key, out_why);
	if (!status)
		status = ki_ze_identity_add(device, key, out_why);
	if (!status) {
		*out_why = "there is no memory";
		status = kiln_key_finish(key);
	}
	if (status)
		kiln_key_free(key);
	else
		*out_key = key;
	return status;
}

enum kiln_status ki_ze_family_key(const struct kiln_key *key,
				  struct kiln_key **out_family)
{
	struct kiln_field source;
	size_t size;
	const void *record = kiln_key_record(key, &size);

	if (kiln_record_find(record, size, "il", &source) &&
	    kiln_record_find(record, size, "module 0 il", &source))
		return KILN_E_INVALID;
	return ki_family_key(key, KIND_FAMILY, &source, out_family);
}
