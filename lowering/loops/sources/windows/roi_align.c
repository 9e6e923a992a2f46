/* Operators: RoiAlign */

static const char *NAME(const tensor *const *in, tensor *const *out) {
    const int64_t channels = in[0]->shape[1], height = in[0]->shape[2], width = in[0]->shape[3],
                  regions = in[1]->shape[0];
    if (!has_shape(in[1], 2, (int64_t[]){regions, 4}) || !has_shape(in[2], 1, &regions))
        return "there are not four sides and a batch for each region";
    if (height * width == 0 && regions > 0) return "the images have no elements";
    const double half = OPSET >= 16 && strcmp(A_coordinate_transformation_mode, "half_pixel") == 0 ? 0.5 : 0;
    const bool takes_largest = strcmp(A_mode, "max") == 0;
    TRY(allocate(out[0], 4, (int64_t[]){regions, channels, A_output_height, A_output_width}, sizeof(O0)));
    O0 *result = OUT(0);
    for (int64_t r = 0; r < regions; ++r) {
        const I1 *region = IN(1) + r * 4;
        const int64_t batch = (int64_t)((const I2 *)in[2]->data)[r];
        if (batch < 0 || batch >= in[0]->shape[0]) return "a region is of a batch that does not exist";
        const double left = (double)region[0] * (double)A_spatial_scale - half,
                     top = (double)region[1] * (double)A_spatial_scale - half;
        double wide = (double)region[2] * (double)A_spatial_scale - half - left;
        double high = (double)region[3] * (double)A_spatial_scale - half - top;
        if (half == 0) wide = MAX_OF(wide, 1.0), high = MAX_OF(high, 1.0);
        const double bin_h = high / A_output_height, bin_w = wide / A_output_width;
        const int64_t rows = A_sampling_ratio > 0 ? A_sampling_ratio : (int64_t)ceil(bin_h);
        const int64_t columns = A_sampling_ratio > 0 ? A_sampling_ratio : (int64_t)ceil(bin_w);
        for (int64_t c = 0; c < channels; ++c) {
            const I0 *plane = IN(0) + (batch * channels + c) * height * width;
            for (int64_t p = 0; p < A_output_height * A_output_width; ++p) {
                double sum = 0, largest = 0;
                for (int64_t s = 0; s < rows * columns; ++s) {
                    double y = top + (double)(p / A_output_width) * bin_h +
                               ((double)(s / columns) + 0.5) * bin_h / (double)rows;
                    double x = left + (double)(p % A_output_width) * bin_w +
                               ((double)(s % columns) + 0.5) * bin_w / (double)columns;
                    double most = 0, total = 0;
                    if (!(y < -1 || y > (double)height || x < -1 || x > (double)width)) {
                        y = clamp((int64_t)y, 0, height - 1) == height - 1 ? (double)(height - 1) : MAX_OF(y, 0.0);
                        x = clamp((int64_t)x, 0, width - 1) == width - 1 ? (double)(width - 1) : MAX_OF(x, 0.0);
                        for (int k = 0; k < 4; ++k) {
                            const int64_t row = (int64_t)y + (k >> 1), column = (int64_t)x + (k & 1);
                            const double a = k >> 1 ? y - floor(y) : 1 - (y - floor(y)),
                                         b = k & 1 ? x - floor(x) : 1 - (x - floor(x));
                            const double v =
                                a * b * (double)plane[MIN_OF(row, height - 1) * width + MIN_OF(column, width - 1)];
                            total += v;
                            most = k == 0 || v > most ? v : most;
                        }
                    }
                    sum += total;
                    largest = s == 0 || most > largest ? most : largest;
                }
                *result++ = (O0)(takes_largest ? largest : sum / (double)MAX_OF(1, rows * columns));
            }
        }
    }
    return NULL;
}
