kernel void invert(write_only image2d_t destination, unsigned int index,
		   read_only image2d_t source)
{
	const sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE |
				  CLK_ADDRESS_CLAMP_TO_EDGE |
				  CLK_FILTER_NEAREST;
	int2 at = (int2)(get_global_id(0), get_global_id(1));
	float4 colour = read_imagef(source, nearest, at);

	write_imagef(destination, at, (float4)(1.0f - colour.xyz, colour.w));
}
