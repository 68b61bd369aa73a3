/* SPDX-License-Identifier: MIT */

/*
 * Questions about programs and kernels.  H answers what it was made with, its
 * shadow what was built, and the entry what a program from a binary may not
 * know: the log, and the kernels as their source had them.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

#include "front/opencl/capture.h"

#define BLANKS " \t\n\r\v\f"

/* Names and options that are no longer need no memory. */
#define WORDS_BYTES 1024

/* Answer as drivers do. */
static cl_int answer(const void *data, size_t size, size_t param_value_size,
		     void *param_value, size_t *param_value_size_ret)
{
	if (param_value && param_value_size < size)
		return CL_INVALID_VALUE;
	if (param_value && size)
		memcpy(param_value, data, size);
	if (param_value_size_ret)
		*param_value_size_ret = size;
	return CL_SUCCESS;
}

static cl_int answer_again(const struct ki_cl_answer *kept,
			   size_t param_value_size, void *param_value,
			   size_t *param_value_size_ret)
{
	if (kept->result)
		return kept->result;
	return answer(kept->data, kept->size, param_value_size, param_value,
		      param_value_size_ret);
}

/*
 * Some drivers tell the size even when there is too little room.  Ours is
 * told then, if the driver does so for the same question.
 */
#define NOT_TOLD ((size_t)-1)

static int is_short(const struct ki_cl_answer *kept, cl_int result,
		    const size_t *param_value_size_ret)
{
	return result == CL_INVALID_VALUE && !kept->result &&
	       param_value_size_ret;
}

/* ---- Programs ------------------------------------------------------------ */

/* An object has no program of its own until a link needs one. */
static cl_program any_of(const struct ki_cl_shadow *shadow, cl_program handle)
{
	cl_program program;

	ki_mutex_lock(&ki_cl_lock);
	program = shadow->program;
	ki_mutex_unlock(&ki_cl_lock);
	return program ? program : handle;
}

static void tell_short_program(cl_program who, cl_program_info what,
			       size_t size, size_t *param_value_size_ret)
{
	size_t told = NOT_TOLD;
	char byte;

	(void)ki_cl_next.clGetProgramInfo(who, what, 0, &byte, &told);
	if (told != NOT_TOLD)
		*param_value_size_ret = size;
}

static cl_uint count_of(cl_program handle)
{
	cl_uint n = 0;

	return ki_cl_next.clGetProgramInfo(handle, CL_PROGRAM_REFERENCE_COUNT,
					   sizeof(n), &n, NULL)
		       ? 0
		       : n;
}

/* The driver's count without our reference, but with what kernels of the
   shadow would have added (not all drivers count kernels). */
static cl_int reference_count(struct ki_cl_program *program,
			      size_t param_value_size, void *param_value,
			      size_t *param_value_size_ret)
{
	struct ki_cl_shadow *shadow;
	cl_uint n, of_shadow;

	ki_cl_program_await(program);
	ki_mutex_lock(&ki_cl_lock);
	shadow = program->of_kernels;
	if (shadow && shadow->is_own)
		shadow = NULL;
	if (shadow)
		shadow->refs++;
	n = program->holds ? (cl_uint)-1 : 0;
	ki_mutex_unlock(&ki_cl_lock);
	n += count_of(program->handle);
	of_shadow = shadow ? count_of(shadow->program) : 0;
	if (of_shadow)
		n += of_shadow - 1;
	ki_cl_shadow_unref(shadow);
	return answer(&n, sizeof(n), param_value_size, param_value,
		      param_value_size_ret);
}

static int is_of_the_build(cl_program_info what)
{
	switch (what) {
	case CL_PROGRAM_BINARY_SIZES:
	case CL_PROGRAM_BINARIES:
	case CL_PROGRAM_NUM_KERNELS:
	case CL_PROGRAM_KERNEL_NAMES:
	case CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT:
	case CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT:
		return 1;
	default:
		return 0;
	}
}

static int is_of_binaries(cl_program_info what)
{
	return what == CL_PROGRAM_BINARY_SIZES || what == CL_PROGRAM_BINARIES;
}

/* Copy to wherever the program has room; it leaves out what it does not
   want. */
static void copy_binaries(unsigned char *const *places,
			  const unsigned char *const *binaries,
			  const size_t *sizes, cl_uint n)
{
	cl_uint i;

	for (i = 0; i < n; i++)
		if (places[i])
			memcpy(places[i], binaries[i], sizes[i]);
}

static cl_int answer_binaries(const unsigned char *const *binaries,
			      const size_t *sizes, cl_uint n,
			      size_t param_value_size, void *param_value,
			      size_t *param_value_size_ret)
{
	if (param_value && param_value_size < n * sizeof(*binaries))
		return CL_INVALID_VALUE;
	if (param_value)
		copy_binaries(param_value, binaries, sizes, n);
	if (param_value_size_ret)
		*param_value_size_ret = n * sizeof(*binaries);
	return CL_SUCCESS;
}

/* Sizes of binaries, or binaries.  KILN_MISS: ask the driver. */
static enum kiln_status tell_binaries(struct ki_cl_shadow *shadow,
				      cl_program who, cl_program_info what,
				      size_t param_value_size,
				      void *param_value,
				      size_t *param_value_size_ret,
				      cl_int *out_result)
{
	const struct kiln_blob *value = ki_cl_shadow_binaries(shadow);
	cl_uint n = shadow->n_devices;
	const unsigned char *binaries[KI_CL_DEVICES_MAX];
	size_t sizes[KI_CL_DEVICES_MAX];

	if (!value || ki_cl_unpack(kiln_blob_data(value), kiln_blob_size(value),
				   n, binaries, sizes))
		return KILN_MISS;
	if (what == CL_PROGRAM_BINARY_SIZES)
		*out_result =
			answer(sizes, n * sizeof(sizes[0]), param_value_size,
			       param_value, param_value_size_ret);
	else
		*out_result =
			answer_binaries(binaries, sizes, n, param_value_size,
					param_value, param_value_size_ret);
	if (*out_result && param_value_size_ret)
		tell_short_program(who, what, n * sizeof(sizes[0]),
				   param_value_size_ret);
	return KILN_OK;
}

/* What a shadow answers from its entry: KILN_OK, or KILN_MISS.  `who` is a
   program of the driver's to see how it answers. */
static enum kiln_status tell(struct ki_cl_shadow *shadow, cl_program who,
			     cl_program_info what, size_t param_value_size,
			     void *param_value, size_t *param_value_size_ret,
			     cl_int *out_result)
{
	struct ki_cl_answer kept;

	if (is_of_binaries(what))
		return tell_binaries(shadow, who, what, param_value_size,
				     param_value, param_value_size_ret,
				     out_result);
	if (what != CL_PROGRAM_KERNEL_NAMES ||
	    ki_cl_described_names(shadow->kernels, shadow->kernels_size, &kept))
		return KILN_MISS;
	*out_result = answer_again(&kept, param_value_size, param_value,
				   param_value_size_ret);
	if (is_short(&kept, *out_result, param_value_size_ret))
		tell_short_program(who, what, kept.size, param_value_size_ret);
	return KILN_OK;
}

/* The driver's answer; binaries are kept if they are wanted. */
static cl_int ask_driver(struct ki_cl_program *program, cl_program who,
			 cl_program_info what, size_t param_value_size,
			 void *param_value, size_t *param_value_size_ret)
{
	struct ki_cl_capture *capture = NULL;
	cl_int result;

	if (program && who == program->handle && param_value &&
	    what == CL_PROGRAM_BINARIES)
		capture = ki_cl_capture_of(program);
	result = ki_cl_next.clGetProgramInfo(who, what, param_value_size,
					     param_value, param_value_size_ret);
	if (!result && capture)
		ki_cl_capture_fetched(program, capture, param_value,
				      param_value_size / sizeof(char *));
	ki_cl_capture_unref(capture);
	return result;
}

cl_int CL_API_CALL ki_clGetProgramInfo(cl_program handle,
				       cl_program_info param_name,
				       size_t param_value_size,
				       void *param_value,
				       size_t *param_value_size_ret)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	struct ki_cl_shadow *shadow = NULL;
	cl_program who = handle;
	cl_int result;

	if (program && param_name == CL_PROGRAM_REFERENCE_COUNT &&
	    !(param_value && param_value_size < sizeof(cl_uint)) &&
	    count_of(handle)) {
		result = reference_count(program, param_value_size, param_value,
					 param_value_size_ret);
		goto out;
	}
	if (program && is_of_the_build(param_name))
		shadow = ki_cl_shadow_of(program);
	if (shadow && is_of_binaries(param_name) && !ki_cl_is_usual(shadow) &&
	    !ki_cl_make_too(program, shadow)) {
		ki_cl_shadow_unref(shadow);
		shadow = NULL;
	}
	if (shadow &&
	    !tell(shadow, any_of(shadow, handle), param_name, param_value_size,
		  param_value, param_value_size_ret, &result))
		goto out;
	if (shadow) {
		ki_cl_shadow_unref(shadow);
		who = ki_cl_answerer(program, &shadow);
	}
	result = ask_driver(program, who, param_name, param_value_size,
			    param_value, param_value_size_ret);
out:
	ki_cl_shadow_unref(shadow);
	ki_cl_program_unref(program);
	return result;
}

static int find(const struct ki_cl_shadow *shadow, cl_device_id device)
{
	cl_uint i;

	for (i = 0; i < shadow->n_devices; i++)
		if (shadow->devices[i] == device)
			return (int)i;
	return -1;
}

/* The device's place in the shadow, -1 if it is none of its.  PoCL takes the
   parts of a device for the whole. */
static int place_of(const struct ki_cl_shadow *shadow, cl_device_id device)
{
	int place = find(shadow, device);
	cl_device_id whole = NULL;

	if (place < 0 && device &&
	    !ki_cl_next.clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE,
					sizeof(whole), &whole, NULL) &&
	    whole)
		place = find(shadow, whole);
	return place;
}

static cl_program_binary_type type_of(const struct ki_cl_recipe *recipe)
{
	if (ki_cl_recipe_has_kernels(recipe))
		return CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
	return recipe->kind == KI_CL_COMPILE
		       ? CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT
		       : CL_PROGRAM_BINARY_TYPE_LIBRARY;
}

static int same_words(const char *a, const char *b)
{
	size_t size;

	do {
		a += strspn(a, BLANKS);
		b += strspn(b, BLANKS);
		size = strcspn(a, BLANKS);
		if (size != strcspn(b, BLANKS) || memcmp(a, b, size))
			return 0;
		a += size;
		b += size;
	} while (size);
	return 1;
}

/* Whether S tells the options that it was built with: then it tells them as
   its driver spells them (PoCL with one blank between them), while others
   forget them of what comes from a binary. */
static int tells_options(const struct ki_cl_shadow *shadow, cl_device_id device)
{
	char few[WORDS_BYTES] = "", *text = few;
	size_t size = 0;
	int same = 0;

	if (shadow->made->recipe->kind != KI_CL_BUILD || !shadow->program ||
	    ki_cl_next.clGetProgramBuildInfo(shadow->program, device,
					     CL_PROGRAM_BUILD_OPTIONS, 0, NULL,
					     &size))
		return 0;
	if (size >= sizeof(few))
		text = calloc(1, size + 1);
	if (text && !ki_cl_next.clGetProgramBuildInfo(shadow->program, device,
						      CL_PROGRAM_BUILD_OPTIONS,
						      size, text, NULL))
		same = same_words(text, shadow->made->recipe->options);
	if (text != few)
		free(text);
	return same;
}

/* KILN_OK with an answer to give, or KILN_MISS: the driver has to. */
static enum kiln_status build_answer(const struct ki_cl_shadow *shadow,
				     cl_uint place, cl_program_build_info what,
				     cl_program_binary_type *type,
				     struct ki_cl_answer *out_answer)
{
	static const cl_build_status status = CL_BUILD_SUCCESS;

	*out_answer = (struct ki_cl_answer){ .result = CL_SUCCESS };
	if (!shadow->made)
		return KILN_MISS;
	switch (what) {
	case CL_PROGRAM_BUILD_STATUS:
		out_answer->data = &status;
		out_answer->size = sizeof(status);
		return KILN_OK;
	case CL_PROGRAM_BINARY_TYPE:
		*type = type_of(shadow->made->recipe);
		out_answer->data = type;
		out_answer->size = sizeof(*type);
		return KILN_OK;
	case CL_PROGRAM_BUILD_OPTIONS:
		if ((!shadow->options &&
		     ki_cl_recipe_has_kernels(shadow->made->recipe)) ||
		    tells_options(shadow, shadow->devices[place]))
			return KILN_MISS;
		out_answer->data = shadow->made->recipe->options;
		out_answer->size = strlen(shadow->made->recipe->options) + 1;
		return KILN_OK;
	case CL_PROGRAM_BUILD_LOG:
		return ki_cl_described_log(shadow->logs, shadow->logs_size,
					   place, out_answer);
	default:
		return KILN_MISS;
	}
}

static void tell_short_build(cl_program who, cl_device_id device,
			     cl_program_build_info what, size_t size,
			     size_t *param_value_size_ret)
{
	size_t told = NOT_TOLD;
	char byte;

	(void)ki_cl_next.clGetProgramBuildInfo(who, device, what, 0, &byte,
					       &told);
	if (told != NOT_TOLD)
		*param_value_size_ret = size;
}

cl_int CL_API_CALL ki_clGetProgramBuildInfo(cl_program handle,
					    cl_device_id device,
					    cl_program_build_info param_name,
					    size_t param_value_size,
					    void *param_value,
					    size_t *param_value_size_ret)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	struct ki_cl_shadow *shadow = program ? ki_cl_shadow_of(program) : NULL;
	int place = shadow ? place_of(shadow, device) : -1;
	cl_program_binary_type type;
	struct ki_cl_answer kept;
	cl_program who = handle;
	cl_int result;

	if (shadow && device &&
	    ki_cl_is_other_device(program, shadow, device)) {
		(void)ki_cl_make_too(program, shadow);
		result = ki_cl_next.clGetProgramBuildInfo(
			handle, device, param_name, param_value_size,
			param_value, param_value_size_ret);
	} else if (place >= 0 && !build_answer(shadow, (cl_uint)place,
					       param_name, &type, &kept)) {
		result = answer_again(&kept, param_value_size, param_value,
				      param_value_size_ret);
		if (is_short(&kept, result, param_value_size_ret))
			tell_short_build(any_of(shadow, handle), device,
					 param_name, kept.size,
					 param_value_size_ret);
	} else {
		/* Of a foreign device most drivers say nothing. */
		result = place >= 0 ? CL_SUCCESS
				    : ki_cl_next.clGetProgramBuildInfo(
					      handle, device, param_name,
					      param_value_size, param_value,
					      param_value_size_ret);
		if (shadow && !result) {
			ki_cl_shadow_unref(shadow);
			who = ki_cl_answerer(program, &shadow);
			result = ki_cl_next.clGetProgramBuildInfo(
				who, device, param_name, param_value_size,
				param_value, param_value_size_ret);
		}
	}
	ki_cl_shadow_unref(shadow);
	ki_cl_program_unref(program);
	return result;
}

/* ---- Kernels ------------------------------------------------------------- */

/* What a kernel of a shadow belongs to, for the length of a question. */
struct owner {
	struct ki_cl_program *program;
	struct ki_cl_shadow *shadow;
	char *name; /* once it was needed */
	char few[WORDS_BYTES];
};

char *ki_cl_kernel_name(cl_kernel kernel, char *few, size_t n_few)
{
	char *name = few;
	size_t size = 0;

	if (ki_cl_next.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, 0, NULL,
				       &size))
		return NULL;
	if (size >= n_few)
		name = malloc(size + 1);
	if (!name)
		return NULL;
	name[size] = '\0';
	if (!ki_cl_next.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, size,
					name, NULL))
		return name;
	if (name != few)
		free(name);
	return NULL;
}

/* Without memory it is a name that no entry has: the driver is asked. */
static const char *name_of(struct owner *owner, cl_kernel kernel)
{
	if (!owner->name)
		owner->name = ki_cl_kernel_name(kernel, owner->few,
						sizeof(owner->few));
	return owner->name ? owner->name : "";
}

/* 1 if it is of a shadow; then owner_fini() must follow. */
static int owner_init(struct owner *owner, cl_kernel kernel)
{
	owner->name = NULL;
	if (!ki_cl_kernel_of(kernel, &owner->program, &owner->shadow))
		return 0;
	if (owner->shadow)
		return 1;
	ki_cl_program_unref(owner->program);
	return 0;
}

static void owner_fini(struct owner *owner)
{
	ki_cl_shadow_unref(owner->shadow);
	ki_cl_program_unref(owner->program);
	if (owner->name != owner->few)
		free(owner->name);
}

static void tell_short_kernel(cl_kernel kernel, cl_kernel_info what,
			      size_t size, size_t *param_value_size_ret)
{
	size_t told = NOT_TOLD;
	char byte;

	(void)ki_cl_next.clGetKernelInfo(kernel, what, 0, &byte, &told);
	if (told != NOT_TOLD)
		*param_value_size_ret = size;
}

cl_int CL_API_CALL ki_clGetKernelInfo(cl_kernel kernel,
				      cl_kernel_info param_name,
				      size_t param_value_size,
				      void *param_value,
				      size_t *param_value_size_ret)
{
	struct ki_cl_answer kept;
	struct owner owner;
	int answered = 0;
	cl_int result = CL_SUCCESS;

	if (((param_name == CL_KERNEL_PROGRAM &&
	      !(param_value && param_value_size < sizeof(cl_program))) ||
	     param_name == CL_KERNEL_ATTRIBUTES) &&
	    owner_init(&owner, kernel)) {
		if (param_name == CL_KERNEL_PROGRAM) {
			answered = 1;
			result = answer(&owner.program->handle,
					sizeof(cl_program), param_value_size,
					param_value, param_value_size_ret);
		} else if (!ki_cl_described_attributes(
				   owner.shadow->kernels,
				   owner.shadow->kernels_size,
				   name_of(&owner, kernel), &kept)) {
			answered = 1;
			result =
				answer_again(&kept, param_value_size,
					     param_value, param_value_size_ret);
			if (is_short(&kept, result, param_value_size_ret))
				tell_short_kernel(kernel, param_name, kept.size,
						  param_value_size_ret);
		}
		owner_fini(&owner);
	}
	return answered ? result
			: ki_cl_next.clGetKernelInfo(
				  kernel, param_name, param_value_size,
				  param_value, param_value_size_ret);
}

/* Of arguments that it knows nothing of a driver does not tell any size: it
   tells them as it tells how many there are. */
static void tell_short_arg(cl_kernel kernel, cl_uint arg,
			   cl_kernel_arg_info what, size_t size,
			   size_t *param_value_size_ret)
{
	size_t told = NOT_TOLD;
	char byte;

	(void)ki_cl_next.clGetKernelArgInfo(kernel, arg, what, 0, &byte, &told);
	if (told != NOT_TOLD)
		*param_value_size_ret = size;
	else
		tell_short_kernel(kernel, CL_KERNEL_NUM_ARGS, size,
				  param_value_size_ret);
}

/* Answers for an argument of a shadow's kernel, asked of the entry first. */
static cl_int arg_of_shadow(struct owner *owner, cl_kernel kernel, cl_uint arg,
			    cl_kernel_arg_info what, size_t param_value_size,
			    void *param_value, size_t *param_value_size_ret)
{
	const struct ki_cl_shadow *shadow = owner->shadow;
	struct ki_cl_answer kept;
	cl_int result;

	if (!ki_cl_described_arg(shadow->kernels, shadow->kernels_size,
				 name_of(owner, kernel), arg, what, &kept)) {
		result = answer_again(&kept, param_value_size, param_value,
				      param_value_size_ret);
		if (is_short(&kept, result, param_value_size_ret))
			tell_short_arg(kernel, arg, what, kept.size,
				       param_value_size_ret);
		return result;
	}
	result = ki_cl_next.clGetKernelArgInfo(kernel, arg, what,
					       param_value_size, param_value,
					       param_value_size_ret);
	/* Where there was information, the question must be the fault. */
	if (result == CL_KERNEL_ARG_INFO_NOT_AVAILABLE &&
	    !ki_cl_described_arg(shadow->kernels, shadow->kernels_size,
				 name_of(owner, kernel), arg,
				 CL_KERNEL_ARG_TYPE_NAME, &kept) &&
	    !kept.result)
		result = CL_INVALID_VALUE;
	return result;
}

cl_int CL_API_CALL ki_clGetKernelArgInfo(cl_kernel kernel, cl_uint arg_index,
					 cl_kernel_arg_info param_name,
					 size_t param_value_size,
					 void *param_value,
					 size_t *param_value_size_ret)
{
	struct owner owner;
	cl_int result;

	if (!owner_init(&owner, kernel))
		return ki_cl_next.clGetKernelArgInfo(
			kernel, arg_index, param_name, param_value_size,
			param_value, param_value_size_ret);
	result = arg_of_shadow(&owner, kernel, arg_index, param_name,
			       param_value_size, param_value,
			       param_value_size_ret);
	owner_fini(&owner);
	return result;
}

/* The kept numbers as the program's own type. */
static cl_int answer_work_group(const struct ki_cl_answer *kept,
				size_t param_value_size, void *param_value,
				size_t *param_value_size_ret)
{
	const uint8_t *numbers = kept->data;
	size_t sizes[3];
	int i;

	if (kept->result)
		return kept->result;
	for (i = 0; i < 3; i++)
		sizes[i] = (size_t)ki_get_u64(numbers + 8 * i);
	return answer(sizes, sizeof(sizes), param_value_size, param_value,
		      param_value_size_ret);
}

/* Not all drivers do, even where there is one device only. */
static int takes_no_device(cl_kernel kernel)
{
	return !ki_cl_next.clGetKernelWorkGroupInfo(
		kernel, NULL, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, 0, NULL, NULL);
}

/* KILN_OK with an answer that was kept, or KILN_MISS: ask the driver. */
static enum kiln_status tell_work_group(struct owner *owner, cl_kernel kernel,
					cl_device_id device,
					struct ki_cl_answer *out_answer)
{
	const struct ki_cl_shadow *shadow = owner->shadow;
	int place = !device && shadow->n_devices == 1 && takes_no_device(kernel)
			    ? 0
			    : place_of(shadow, device);

	if (place < 0 ||
	    ki_cl_described_work_group(shadow->kernels, shadow->kernels_size,
				       name_of(owner, kernel), (cl_uint)place,
				       out_answer))
		return KILN_MISS;
	return out_answer->result || out_answer->size == 24 ? KILN_OK
							    : KILN_MISS;
}

static void other_fini(cl_kernel other)
{
	if (other)
		(void)ki_cl_next.clReleaseKernel(other);
}

cl_int CL_API_CALL ki_clGetKernelWorkGroupInfo(
	cl_kernel kernel, cl_device_id device,
	cl_kernel_work_group_info param_name, size_t param_value_size,
	void *param_value, size_t *param_value_size_ret)
{
	cl_kernel other = NULL;
	struct ki_cl_answer kept;
	struct owner owner;
	int answered = 0;
	cl_int result = CL_SUCCESS;

	if (owner_init(&owner, kernel)) {
		other = ki_cl_other_kernel(owner.program, owner.shadow, device,
					   kernel);
		answered = !other &&
			   param_name == CL_KERNEL_COMPILE_WORK_GROUP_SIZE &&
			   !(param_value && param_value_size < 24) &&
			   !tell_work_group(&owner, kernel, device, &kept);
		if (answered)
			result = answer_work_group(&kept, param_value_size,
						   param_value,
						   param_value_size_ret);
		owner_fini(&owner);
	}
	if (!answered)
		result = ki_cl_next.clGetKernelWorkGroupInfo(
			other ? other : kernel, device, param_name,
			param_value_size, param_value, param_value_size_ret);
	other_fini(other);
	return result;
}

static cl_int sub_group_info(cl_api_clGetKernelSubGroupInfo ask,
			     cl_kernel kernel, cl_device_id device,
			     cl_kernel_sub_group_info param_name,
			     size_t input_value_size, const void *input_value,
			     size_t param_value_size, void *param_value,
			     size_t *param_value_size_ret)
{
	cl_kernel other = NULL;
	struct owner owner;
	cl_int result;

	if (owner_init(&owner, kernel)) {
		other = ki_cl_other_kernel(owner.program, owner.shadow, device,
					   kernel);
		owner_fini(&owner);
	}
	result = ask(other ? other : kernel, device, param_name,
		     input_value_size, input_value, param_value_size,
		     param_value, param_value_size_ret);
	other_fini(other);
	return result;
}

cl_int CL_API_CALL ki_clGetKernelSubGroupInfo(
	cl_kernel kernel, cl_device_id device,
	cl_kernel_sub_group_info param_name, size_t input_value_size,
	const void *input_value, size_t param_value_size, void *param_value,
	size_t *param_value_size_ret)
{
	return sub_group_info(ki_cl_next.clGetKernelSubGroupInfo, kernel,
			      device, param_name, input_value_size, input_value,
			      param_value_size, param_value,
			      param_value_size_ret);
}

cl_int CL_API_CALL ki_clGetKernelSubGroupInfoKHR(
	cl_kernel kernel, cl_device_id device,
	cl_kernel_sub_group_info param_name, size_t input_value_size,
	const void *input_value, size_t param_value_size, void *param_value,
	size_t *param_value_size_ret)
{
	return sub_group_info(ki_cl_next.clGetKernelSubGroupInfoKHR, kernel,
			      device, param_name, input_value_size, input_value,
			      param_value_size, param_value,
			      param_value_size_ret);
}
