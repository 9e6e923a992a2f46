/* Operators: RoiAlign */

/* A sample of an image: four pixels and their weights, all of them 0 outside. */
typedef struct {
    int64_t places[4];
    double weights[4];
} LOCAL(sample);

static LOCAL(sample) LOCAL(sample_at)(double y, double x, int64_t height, int64_t width) {
    LOCAL(sample) sample = {{0}, {0}};
    if (y < -1 || y > (double)height || x < -1 || x > (double)width) return sample;
    y = clamp((int64_t)y, 0, height - 1) == height - 1 ? (double)(height - 1) : MAX_OF(y, 0.0);
    x = clamp((int64_t)x, 0, width - 1) == width - 1 ? (double)(width - 1) : MAX_OF(x, 0.0);
    for (int k = 0; k < 4; ++k) {
        const int64_t row = (int64_t)y + (k >> 1), column = (int64_t)x + (k & 1);
        sample.places[k] = MIN_OF(row, height - 1) * width + MIN_OF(column, width - 1);
        const double a = y - floor(y), b = x - floor(x);
        sample.weights[k] = (double)((k >> 1 ? a : 1 - a) * (k & 1 ? b : 1 - b));
    }
    return sample;
}

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
        /* all channels of a region have the same samples */
        const int64_t cells = A_output_height * A_output_width, samples = MAX_OF(0, rows * columns);
        LOCAL(sample) *taken = malloc((size_t)(cells * samples + 1) * sizeof *taken);
        if (taken == NULL) return "out of memory";
        for (int64_t n = 0; n < cells * samples; ++n) {
            const int64_t p = n / samples, s = n % samples;
            const double y = top + (double)(p / A_output_width) * bin_h +
                             ((double)(s / columns) + 0.5) * bin_h / (double)rows;
            const double x = left + (double)(p % A_output_width) * bin_w +
                             ((double)(s % columns) + 0.5) * bin_w / (double)columns;
            taken[n] = LOCAL(sample_at)(y, x, height, width);
        }
        for (int64_t c = 0; c < channels; ++c) {
            const I0 *plane = IN(0) + (batch * channels + c) * height * width;
            for (int64_t p = 0; p < cells; ++p) {
                double sum = 0, largest = 0;
                for (int64_t s = 0; s < samples; ++s) {
                    const LOCAL(sample) *sample = &taken[p * samples + s];
                    double parts[4];
                    for (int k = 0; k < 4; ++k)
                        parts[k] = sample->weights[k] * (double)plane[sample->places[k]];
                    sum += (parts[0] + parts[1]) + (parts[2] + parts[3]);
                    const double most = MAX_OF(MAX_OF(parts[0], parts[1]), MAX_OF(parts[2], parts[3]));
                    largest = s == 0 || most > largest ? most : largest;
                }
                *result++ = (O0)(takes_largest ? largest : sum / (double)MAX_OF(1, samples));
            }
        }
        free(taken);
    }
    return NULL;
}
