/* SPDX-License-Identifier: MIT */

/*
 * Modules.  A native binary is "KZE1", the device's id, how many parts, and of
 * each its size and what the compiler made.  A module from a binary has an
 * empty log; one that was compiled has what the compiler said.
 */

#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAGIC	     0x31455a4bu
#define HEADER_BYTES 12

enum { SPIRV_MAGIC = 0x07230203, OP_SPEC_CONSTANT = 50, OP_DECORATE = 71 };

struct _ze_module_handle_t {
	struct bytes binary;
	char names[2][32];
};
struct _ze_module_build_log_handle_t {
	struct bytes text;
};

static int is_on(const char *name)
{
	const char *value = getenv(name);

	return value && *value && strcmp(value, "0") != 0;
}

/* ---- Specialization ---------------------------------------------------------- */

/* A real driver has the compiler do this. */
static void specialize(uint32_t *words, size_t n, uint32_t id, uint32_t value)
{
	uint32_t target = 0, size;
	size_t i;

	for (i = 5; i < n; i += size) {
		uint32_t code = words[i] & 0xffff;

		size = words[i] >> 16;
		if (!size || i + size > n)
			return;
		if (code == OP_DECORATE && size == 4 && words[i + 2] == 1 &&
		    words[i + 3] == id)
			target = words[i + 1];
		if (code == OP_SPEC_CONSTANT && target &&
		    words[i + 2] == target)
			words[i + 3] = value;
	}
}

static void *specialized(const void *il, size_t size,
			 const ze_module_constants_t *constants)
{
	uint32_t *copy = malloc(size + 1), i;

	if (!copy)
		abort();
	memcpy(copy, il, size);
	for (i = 0; constants && i < constants->numConstants; i++)
		specialize(copy, size / 4, constants->pConstantIds[i],
			   *(const uint32_t *)constants->pConstantValues[i]);
	return copy;
}

/* ---- Making ------------------------------------------------------------------- */

static ze_result_t add_part(const struct _ze_device_handle_t *device,
			    const void *il, size_t size, const char *flags,
			    const ze_module_constants_t *constants,
			    struct bytes *binary, struct bytes *log)
{
	const char *code = getenv("KILN_TEST_ZE_CODE");
	struct bytes part = { 0 };
	void *copy = specialized(il, size, constants);
	int failed;

	note("spirv", size);
	failed = compile(copy, size, flags, device->target, &part, log);
	free(copy);
	if (!failed && code)
		bytes_add(&part, code, strlen(code));
	if (!failed) {
		bytes_add_u32(binary, (uint32_t)part.size);
		bytes_add(binary, part.data, part.size);
	}
	free(part.data);
	return failed ? ZE_RESULT_ERROR_MODULE_BUILD_FAILURE
		      : ZE_RESULT_SUCCESS;
}

static ze_result_t from_spirv(const struct _ze_device_handle_t *device,
			      const ze_module_desc_t *desc,
			      struct bytes *binary, struct bytes *log)
{
	const ze_module_program_exp_desc_t *program = desc->pNext;
	ze_result_t result = ZE_RESULT_SUCCESS;
	uint32_t i;

	if (program &&
	    program->stype != ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC)
		program = NULL;
	bytes_add_u32(binary, MAGIC);
	bytes_add_u32(binary, device->id);
	bytes_add_u32(binary, program ? program->count : 1);
	if (!program)
		return add_part(device, desc->pInputModule, desc->inputSize,
				desc->pBuildFlags, desc->pConstants, binary,
				log);
	for (i = 0; i < program->count && !result; i++)
		result = add_part(
			device, program->pInputModules[i],
			program->inputSizes[i],
			program->pBuildFlags ? program->pBuildFlags[i] : NULL,
			program->pConstants ? program->pConstants[i] : NULL,
			binary, log);
	return result;
}

static ze_result_t from_native(const struct _ze_device_handle_t *device,
			       const ze_module_desc_t *desc,
			       struct bytes *binary)
{
	uint32_t header[3];

	note("native", desc->inputSize);
	if (desc->inputSize < HEADER_BYTES || is_on("KILN_TEST_ZE_REFUSE"))
		return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
	memcpy(header, desc->pInputModule, sizeof(header));
	if (header[0] != MAGIC || header[1] != device->id)
		return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
	bytes_add(binary, desc->pInputModule, desc->inputSize);
	return ZE_RESULT_SUCCESS;
}

struct link {
	ze_structure_type_t stype;
	const struct link *next;
};

/* What a driver sees besides the code. */
static void note_request(const ze_module_desc_t *desc)
{
	const struct link *link;

	for (link = desc->pNext; link; link = link->next)
		note("chain", link->stype);
	if (desc->pBuildFlags && *desc->pBuildFlags)
		note("flags", strlen(desc->pBuildFlags));
}

/* The log is made in all cases, as NEO does. */
static ze_result_t create(ze_context_handle_t context,
			  ze_device_handle_t handle,
			  const ze_module_desc_t *desc,
			  ze_module_handle_t *out_module,
			  ze_module_build_log_handle_t *out_log)
{
	const struct _ze_device_handle_t *device = device_of(handle);
	struct bytes binary = { 0 }, log = { 0 };
	ze_result_t result;

	if (!device)
		return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
	if (!desc || !out_module)
		return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
	if (!desc->pInputModule && !desc->pNext)
		return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
	note_request(desc);
	result = desc->format == ZE_MODULE_FORMAT_NATIVE
			 ? from_native(device, desc, &binary)
			 : from_spirv(device, desc, &binary, &log);
	if (!result) {
		*out_module = calloc(1, sizeof(**out_module));
		(*out_module)->binary = binary;
		binary = (struct bytes){ 0 };
	}
	if (out_log) {
		*out_log = calloc(1, sizeof(**out_log));
		(*out_log)->text = log;
		log = (struct bytes){ 0 };
	}
	free(binary.data);
	free(log.data);
	return result;
}

static ze_result_t destroy(ze_module_handle_t module)
{
	/* Whoever reads it afterwards is to be seen. */
	memset(module->binary.data, 0xdd, module->binary.size);
	free(module->binary.data);
	free(module);
	return ZE_RESULT_SUCCESS;
}

/* As long as a driver takes that has to compile again. */
static void take_long(void)
{
	struct timespec began, now;

	clock_gettime(CLOCK_MONOTONIC, &began);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - began.tv_sec) * 1000000000 + now.tv_nsec -
		       began.tv_nsec <
	       15000000);
}

static ze_result_t get_binary(ze_module_handle_t module, size_t *size,
			      uint8_t *data)
{
	if (is_on("KILN_TEST_ZE_NO_BINARY"))
		return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
	if (data && is_on("KILN_TEST_ZE_SLOW"))
		take_long();
	if (data) {
		note("fetch", module->binary.size);
		memcpy(data, module->binary.data, module->binary.size);
	}
	*size = module->binary.size;
	return ZE_RESULT_SUCCESS;
}

/* ---- What is asked of modules ---------------------------------------------------- */

static uint32_t sum_of(const struct bytes *binary)
{
	uint32_t sum = 2166136261u;
	size_t i;

	for (i = 0; i < binary->size; i++)
		sum = (sum ^ binary->data[i]) * 16777619u;
	return sum;
}

/* Two, told from the code. */
static ze_result_t kernel_names(ze_module_handle_t module, uint32_t *n,
				const char **names)
{
	if (names && *n >= 2) {
		snprintf(module->names[0], sizeof(module->names[0]), "add_%x",
			 sum_of(&module->binary));
		snprintf(module->names[1], sizeof(module->names[1]), "sub_%zu",
			 module->binary.size);
		names[0] = module->names[0];
		names[1] = module->names[1];
	}
	*n = 2;
	return ZE_RESULT_SUCCESS;
}

static ze_result_t properties(ze_module_handle_t module,
			      ze_module_properties_t *out)
{
	out->flags = sum_of(&module->binary) & 1;
	return ZE_RESULT_SUCCESS;
}

/* Its log names what was linked; from then on a module's binary is another. */
static ze_result_t dynamic_link(uint32_t n, ze_module_handle_t *modules,
				ze_module_build_log_handle_t *out_log)
{
	struct bytes log = { 0 };
	char line[64];
	uint32_t i;

	for (i = 0; i < n; i++) {
		snprintf(line, sizeof(line), "linked %x\n",
			 sum_of(&modules[i]->binary));
		bytes_add(&log, line, strlen(line));
		bytes_add(&modules[i]->binary, "linked", 6);
	}
	if (out_log) {
		*out_log = calloc(1, sizeof(**out_log));
		(*out_log)->text = log;
	} else {
		free(log.data);
	}
	return ZE_RESULT_SUCCESS;
}

void fill_modules(ze_module_dditable_t *table)
{
	table->pfnCreate = create;
	table->pfnDestroy = destroy;
	table->pfnDynamicLink = dynamic_link;
	table->pfnGetNativeBinary = get_binary;
	table->pfnGetKernelNames = kernel_names;
	table->pfnGetProperties = properties;
}

/* ---- Logs ---------------------------------------------------------------------- */

static ze_result_t log_destroy(ze_module_build_log_handle_t log)
{
	free(log->text.data);
	free(log);
	return ZE_RESULT_SUCCESS;
}

static ze_result_t log_string(ze_module_build_log_handle_t log, size_t *size,
			      char *text)
{
	if (text) {
		if (log->text.size)
			memcpy(text, log->text.data, log->text.size);
		text[log->text.size] = '\0';
	}
	*size = log->text.size + 1;
	return ZE_RESULT_SUCCESS;
}

void fill_logs(ze_module_build_log_dditable_t *table)
{
	table->pfnDestroy = log_destroy;
	table->pfnGetString = log_string;
}
