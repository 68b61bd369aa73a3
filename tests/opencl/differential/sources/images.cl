/* Images and samplers of every kind that most drivers have. */
__constant sampler_t NEAREST = CLK_NORMALIZED_COORDS_FALSE |
			       CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;

__kernel void mirror(__read_only image2d_t in, __write_only image2d_t out)
{
	int x = get_global_id(0), y;

	for (y = 0; y < get_image_height(in); y++)
		write_imagef(out, (int2)(x, y),
			     read_imagef(in, NEAREST,
					 (int2)(get_image_width(in) - 1 - x,
						y)));
}

__kernel void sampled(__read_only image2d_t in, sampler_t by,
		      __global float4 *out, float step)
{
	int i = get_global_id(0);

	out[i] = read_imagef(in, by, (float2)(i * step / 8, 1.5f));
}

__kernel void row(__read_only image1d_t in, __write_only image1d_t out)
{
	int i = get_global_id(0);

	write_imagef(out, i, 2 * read_imagef(in, NEAREST, i));
}

__kernel void layers(__read_only image2d_array_t in, __global float *out)
{
	int i = get_global_id(0);

	out[i] = read_imagef(in, NEAREST, (int4)(i, 1, 1, 0)).y +
		 get_image_array_size(in);
}

__kernel void volume(__read_only image3d_t in, __global float4 *out)
{
	int i = get_global_id(0);

	out[i] = read_imagef(in, NEAREST, (int4)(i, 2, 1, 0)) +
		 get_image_depth(in);
}
