/* Arguments of every kind, attributes, local memory, program-scope tables. */
__constant float TABLE[4] = { 0.5f, 1.5f, 2.5f, 3.5f };

typedef struct {
	float4 where;
	int which;
} item;

__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
__attribute__((vec_type_hint(float4))) void
reverse(__global const float *restrict in, __global volatile float *out,
	__local float *scratch)
{
	int l = get_local_id(0), n = get_local_size(0);

	scratch[l] = in[get_global_id(0)];
	barrier(CLK_LOCAL_MEM_FENCE);
	out[get_global_id(0)] = scratch[n - 1 - l] * TABLE[l & 3];
}

__kernel void vectors(__global float4 *out, float4 by, uchar3 small,
		      __constant int *table, ulong large)
{
	int i = get_global_id(0);

	out[i] = out[i] * by + (float4)(small.x, small.y, table[i], large);
}

__kernel void items(__global item *items, item one)
{
	items[get_global_id(0)].where = one.where;
}

__kernel void images(__read_only image2d_t in, __write_only image2d_t out,
		     sampler_t sampler)
{
	int2 at = (int2)(get_global_id(0), get_global_id(1));

	write_imagef(out, at, read_imagef(in, sampler, at));
}

__kernel void atomics(__global int *out)
{
	atomic_add(&out[0], (int)get_global_id(0));
	out[8] = mad24(3, 4, 5);
}

__kernel void functions(__global float *data)
{
	int i = get_global_id(0);

	data[i] = sqrt(data[i]) + native_recip(1.0f + i) + fma(2.0f, 3.0f, i);
}

__kernel void nothing(void)
{
}
